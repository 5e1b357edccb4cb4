//! Addresses that are not free, and their owners.

use super::transport::Call;
use super::{Client, ClientError};
use crate::wire::{AddressEntry, AddressPage, AddressSource};
use std::net::IpAddr;

/// The choice of addresses to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressOptions {
    /// In this Subnet.
    pub subnet: Option<String>,
    /// This one alone.
    pub address: Option<IpAddr>,
    /// From this source.
    pub source: Option<AddressSource>,
    /// Most entries of a page; the region's choice when absent.
    pub limit: Option<u32>,
    /// `next` of the page before.
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

    /// All of them, page by page from `next` on.
    ///
    /// # Errors
    /// As of [`Client::addresses`].
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
