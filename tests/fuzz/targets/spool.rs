//! See `basalt_fuzz::spool`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::spool(data));
