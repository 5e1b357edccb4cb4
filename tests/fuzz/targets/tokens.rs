//! See `basalt_fuzz::tokens`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::tokens(data));
