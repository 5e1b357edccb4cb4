//! RRsets in wire format (RFC 2181 §5).

use std::net::IpAddr;

use hickory_proto::rr::RecordType;

/// The numbers of the types that this crate treats specially.
pub(crate) mod rtype {
    pub(crate) const A: u16 = 1;
    pub(crate) const NS: u16 = 2;
    pub(crate) const CNAME: u16 = 5;
    pub(crate) const SOA: u16 = 6;
    pub(crate) const PTR: u16 = 12;
    pub(crate) const MX: u16 = 15;
    pub(crate) const AAAA: u16 = 28;
    pub(crate) const DNAME: u16 = 39;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const DS: u16 = 43;
    pub(crate) const RRSIG: u16 = 46;
    pub(crate) const TKEY: u16 = 249;
    pub(crate) const TSIG: u16 = 250;
    pub(crate) const IXFR: u16 = 251;
    pub(crate) const AXFR: u16 = 252;
    pub(crate) const MAILB: u16 = 253;
    pub(crate) const MAILA: u16 = 254;
    pub(crate) const ANY: u16 = 255;
}

/// The records of one name and type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RrSet {
    pub(crate) rtype: u16,
    pub(crate) ttl: u32,
    /// Each RDATA after its length. Names in it have no pointers.
    data: Box<[u8]>,
}

impl RrSet {
    pub(crate) fn new<'a>(rtype: u16, ttl: u32, rdatas: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut data = Vec::new();
        for rdata in rdatas {
            // Longer RDATA has been refused before.
            let length = u16::try_from(rdata.len()).unwrap_or(u16::MAX);
            data.extend_from_slice(&length.to_be_bytes());
            data.extend_from_slice(rdata.get(..usize::from(length)).unwrap_or(rdata));
        }
        Self { rtype, ttl, data: data.into_boxed_slice() }
    }

    pub(crate) fn address(address: IpAddr, ttl: u32) -> Self {
        match address {
            IpAddr::V4(address) => Self::new(rtype::A, ttl, [&address.octets()[..]]),
            IpAddr::V6(address) => Self::new(rtype::AAAA, ttl, [&address.octets()[..]]),
        }
    }

    pub(crate) fn rdatas(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let mut rest = &*self.data;
        std::iter::from_fn(move || {
            let (length, tail) = rest.split_first_chunk::<2>()?;
            let (rdata, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            rest = tail;
            Some(rdata)
        })
    }

    /// The size of its data, in octets.
    pub(crate) fn size(&self) -> usize {
        self.data.len()
    }

    /// The addresses, if the records are addresses.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let rtype = self.rtype;
        self.rdatas().filter_map(move |rdata| match rtype {
            rtype::A => <[u8; 4]>::try_from(rdata).ok().map(IpAddr::from),
            rtype::AAAA => <[u8; 16]>::try_from(rdata).ok().map(IpAddr::from),
            _ => None,
        })
    }
}

/// The name of the type, for people (RFC 3597 §5).
pub(crate) fn type_name(rtype: u16) -> String {
    match RecordType::from(rtype) {
        RecordType::Unknown(_) => format!("TYPE{rtype}"),
        known => known.to_string(),
    }
}

/// The number of octets before the names of an RDATA, and the number of names. Only types of RFC 1035 may be compressed
/// (RFC 3597 §4).
pub(crate) fn names_in(rtype: u16) -> (usize, usize) {
    match rtype {
        rtype::NS | rtype::CNAME | rtype::PTR => (0, 1),
        rtype::MX => (2, 1),
        rtype::SOA => (0, 2),
        _ => (0, 0),
    }
}
