//! Identifiers and counters. Each has its own type, so that the compiler finds mix-ups.

use super::BadValue;
use super::{quoted, text_value};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[doc = $doc:literal] $name:ident),* $(,)?) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// The UUID itself, as the database has it.
            #[must_use]
            pub const fn get(self) -> Uuid {
                self.0
            }
        }
        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }
        impl FromStr for $name {
            type Err = BadValue;
            fn from_str(text: &str) -> Result<Self, BadValue> {
                Uuid::try_parse(text).map(Self).map_err(|_| {
                    BadValue::new(
                        format!("{} is not a UUID", quoted(text)),
                        "like 0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e",
                    )
                })
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        text_value!($name, Uid);
    )*};
}

uuid_id! {
    /// Identifies an object for its whole life, even after a rename. Version 7 (RFC 9562 §5.7): sorts by time of creation.
    Uid,
    /// The uid of a Machine.
    MachineId,
    /// The uid of a Deployment.
    DeploymentId,
    /// The uid of a Rack.
    RackId,
    /// The uid of a Subnet.
    SubnetId,
    /// The uid of a VLAN.
    VlanId,
    /// The uid of an Image.
    ImageId,
    /// The id of an operation on a Machine.
    OperationId,
    /// A run of a client, such as one apply of Terraform. The client chooses it.
    RunId,
    /// Identifies a history of the database. A restore that lost commits makes a new one, so that numbers from before are not compared.
    Incarnation,
}

impl RunId {
    /// A new random id, which contains the present time.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Uid {
    /// A new random id, which contains the present time.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Incarnation {
    /// A new random id.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::new_v4())
    }
}

macro_rules! uid_of {
    ($($name:ident),*) => {$(
        impl From<Uid> for $name {
            fn from(uid: Uid) -> Self {
                Self(uid.0)
            }
        }
        impl From<$name> for Uid {
            fn from(id: $name) -> Self {
                Self(id.0)
            }
        }
    )*};
}
uid_of!(MachineId, DeploymentId, RackId, SubnetId, VlanId, ImageId);

macro_rules! counter {
    ($(#[doc = $doc:literal] $name:ident),* $(,)?) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The counter with this value. Values from Basalt's own counters are below 2^53.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The value of the counter.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The next value.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        impl FromStr for $name {
            type Err = BadValue;
            fn from_str(text: &str) -> Result<Self, BadValue> {
                text.parse().map(Self).map_err(|_| {
                    BadValue::new(format!("{} is not a number", quoted(text)), "a whole number, like 3")
                })
            }
        }
        impl crate::Described for $name {
            const TYPE: crate::Type = crate::Type::Int { min: 0, max: crate::MAX_INT };
        }
    )*};
}

counter! {
    /// Number of changes of a spec; 1 at creation. It is the ETag.
    Generation,
    /// Number of changes of a secret's plaintext.
    Revision,
    /// Orders commands of several region processes to a rack or a BMC. Commands of a lower epoch are refused.
    Epoch,
    /// Orders destructive tasks in the whole region. Disk markers contain it.
    Attempt,
}
