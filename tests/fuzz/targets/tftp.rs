//! See `basalt_fuzz::tftp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::tftp(data));
