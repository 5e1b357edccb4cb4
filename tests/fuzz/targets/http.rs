//! See `basalt_fuzz::http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::http(data));
