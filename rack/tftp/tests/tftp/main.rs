//! The behaviour of the TFTP cores and their shell, seen from the wire.
#![expect(clippy::print_stdout, reason = "what happened is read by people")]

mod codec;
mod foreign;
mod fuzz;
mod lossy;
mod shell;
mod support;
mod transfers;
