//! See `basalt_fuzz::objects`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::objects(data));
