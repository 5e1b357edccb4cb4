//! See `basalt_fuzz::router`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::router(data));
