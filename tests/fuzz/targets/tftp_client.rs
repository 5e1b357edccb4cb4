//! See `basalt_fuzz::tftp_client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::tftp_client(data));
