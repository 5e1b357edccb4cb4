//! See `basalt_fuzz::concern`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::concern(data));
