//! The behaviour of the TFTP cores and their shell, seen from the wire.

mod codec;
mod lossy;
mod shell;
mod transfers;
