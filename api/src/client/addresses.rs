//! Addresses in use or reserved, and their owners.

use super::transport::Call;
use super::{Client, ClientError};
use crate::wire::{AddressEntry, AddressPage, AddressSource};
use std::net::IpAddr;

/// Selection and page of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressOptions {
    /// Only addresses in this Subnet.
    pub subnet: Option<String>,
    /// Only this address.
    pub address: Option<IpAddr>,
    /// Only addresses from this source.
    pub source: Option<AddressSource>,
    /// Most entries of a page. Absent: the region chooses.
    pub limit: Option<u32>,
    /// `next` of the previous page.
    pub next: Option<String>,
}

impl Client {
    /// A page of addresses, by subnet and address.
    ///
    /// # Errors
    /// `not_found` if there is no such subnet, and see [`ClientError`].
    pub async fn addresses(&self, options: &AddressOptions) -> Result<AddressPage, ClientError> {
        let mut call = Call::get("/api/v1/addresses");
        let pairs = [
            ("subnet", options.subnet.clone()),
            ("address", options.address.map(|address| address.to_string())),
            ("source", options.source.map(|source| source.as_str().to_owned())),
            ("limit", options.limit.map(|limit| limit.to_string())),
            ("continue", options.next.clone()),
        ];
        for (name, value) in pairs {
            if let Some(value) = value {
                call = call.query(name, &value);
            }
        }
        self.transport.json(call).await
    }

    /// All addresses that fit, page by page from `next` on.
    ///
    /// # Errors
    /// The same as for [`Client::addresses`].
    pub async fn all_addresses(&self, options: &AddressOptions) -> Result<Vec<AddressEntry>, ClientError> {
        let (mut all, mut options) = (Vec::new(), options.clone());
        loop {
            let page = self.addresses(&options).await?;
            all.extend(page.items);
            match page.next {
                Some(next) if options.next.as_ref() != Some(&next) => options.next = Some(next),
                _ => return Ok(all),
            }
        }
    }
}
