//! The data of tasks beside the plan: package repositories, log receivers, the proxy, and the token of reports.

pub(crate) mod packages;
pub(crate) mod proxy;
pub(crate) mod report_token;
pub(crate) mod syslog;
