//! See `basalt_fuzz::terraform`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::terraform(data));
