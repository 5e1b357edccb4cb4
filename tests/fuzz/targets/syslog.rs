//! See `basalt_fuzz::syslog`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::syslog(data));
