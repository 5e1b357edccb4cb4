//! See `basalt_fuzz::expression`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::expression(data));
