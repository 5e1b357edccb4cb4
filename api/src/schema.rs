//! The description of a kind: plain static data, from which REST, OpenAPI, the Terraform schema, documentation,
//! validation and diffs follow. Nothing else describes a kind.

use crate::values::{BadValue, Naming};
use basalt_api_derive::Shape;
use serde_json::Value;

/// Largest integer of a spec: every JSON reader and Terraform hold it exactly.
pub const MAX_INT: i64 = (1 << 53) - 1;

/// A kind of object.
pub struct Kind {
    /// As in `kind` of an object: `IpRange`.
    pub name: &'static str,
    /// As in the path: `ip_ranges`.
    pub plural: &'static str,
    /// The resource type: `basalt_ip_range`. The data source of many has the plural: `basalt_ip_ranges`.
    pub terraform_name: &'static str,
    /// Description, for people.
    pub doc: &'static str,
    /// The fields that clients declare.
    pub spec: &'static Schema,
    /// The fields that the region reports.
    pub status: &'static Schema,
    /// True if clients create objects of this kind. Other objects are enrolled or observed; they are read-only in Terraform.
    pub declarable: bool,
    /// True if the driver plans steps for these objects. It also decides when a deleted one is gone. Objects of other kinds leave as soon as
    /// nothing refers to them.
    pub planned: bool,
    /// Set while the region only stores and serves objects of this kind and nothing acts on them: the reason, as the end of a sentence. The
    /// documentation shows it. A change that makes something act on the kind removes it.
    pub dormant: Option<&'static str>,
    /// The form of its names.
    pub naming: Naming,
    /// The intrinsic rules between fields; see [`crate::validate()`].
    pub(crate) rules: crate::validate::Rules,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Kind {}

impl Kind {
    /// The kind called `name` in any of its spellings: `IpRange`, `ip_ranges`, `ip_range`, `basalt_ip_range`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        crate::KINDS.iter().copied().find(|kind| {
            kind.name == name
                || kind.plural == name
                || kind.terraform_name == name
                || kind.terraform_name.strip_prefix("basalt_") == Some(name)
        })
    }

    /// True if `name` is a [planned](Self::planned) kind.
    #[must_use]
    pub fn is_planned(name: &str) -> bool {
        Self::find(name).is_some_and(|kind| kind.planned)
    }

    /// Its name as one JSON and Terraform word: `ip_range`.
    #[must_use]
    pub fn singular(&self) -> &'static str {
        self.terraform_name.strip_prefix("basalt_").unwrap_or(self.terraform_name)
    }
}

/// The fields of an object.
#[derive(Debug)]
pub struct Schema {
    /// The Rust type's name; unique, and the name of the OpenAPI component.
    pub name: &'static str,
    /// Description, for people.
    pub doc: &'static str,
    /// In the order in which tools show them.
    pub fields: &'static [Field],
}

impl Schema {
    /// The field called `name`.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

/// A field of an object.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name in JSON.
    pub name: &'static str,
    /// Description, for people.
    pub doc: &'static str,
    /// Type of the values.
    pub ty: Type,
    /// Meaning of an absent field.
    pub presence: Presence,
    /// Effect of a change on running machines and services. A change inside an object counts as the strongest effect along its path.
    pub effect: Effect,
    /// The value is set at creation and never changes.
    pub immutable: bool,
    /// Tools do not show the value. Unlike a secret, it is stored, returned and compared in plain form.
    pub sensitive: bool,
    /// The fields beside a secret that decide where it is sent. Empty: it is sent nowhere. `None`: the field is no secret.
    pub destination: Option<&'static [&'static str]>,
    /// For status fields: if the value can change while nobody changes a spec.
    pub stability: Stability,
    /// The values of this field that nothing acts on yet. The documentation shows them as well.
    pub dormant: &'static [Dormant],
}

/// A field, or a value of it, that is stored and served but that nothing acts on yet. A change that makes something act on it removes this
/// mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dormant {
    /// The word of an enum. Absent: the mark is for every value of the field.
    pub word: Option<&'static str>,
    /// The reason, or the behaviour instead, as the end of a sentence.
    pub because: &'static str,
}

/// The type of a field's values.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// True or false.
    Bool,
    /// A whole number.
    Int {
        /// Smallest allowed value.
        min: i64,
        /// Largest; at most [`MAX_INT`].
        max: i64,
    },
    /// One line of text.
    String,
    /// Several lines of text.
    Text,
    /// One of these words.
    Enum(&'static [&'static str]),
    /// A text with a defined form.
    Semantic(Semantic),
    /// The name of an object. The string is the name of its kind.
    Ref(&'static str),
    /// A secret: see [`crate::values::Secret`].
    Secret,
    /// An object with the fields of this schema.
    Object(&'static Schema),
    /// Values whose order matters. Only scalars, except in `conditions`.
    List(&'static Self),
    /// Scalars whose order does not matter.
    Set(&'static Self),
    /// Values by natural key.
    Map {
        /// Type of the keys: `String`, `Enum`, `Semantic` or `Ref`.
        key: &'static Self,
        /// Type of the values: scalar or object.
        value: &'static Self,
    },
    /// An object of any shape. Only for values that the region computes and Terraform does not read.
    Json,
}

impl Type {
    /// True for types that are neither objects nor collections.
    #[must_use]
    pub const fn is_scalar(&self) -> bool {
        !matches!(self, Self::Object(_) | Self::List(_) | Self::Set(_) | Self::Map { .. } | Self::Json)
    }
}

/// The form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Semantic {
    /// [`crate::values::Mac`].
    Mac,
    /// [`crate::values::Duid`].
    Duid,
    /// An IPv4 or IPv6 address.
    Ip,
    /// [`crate::values::Cidr`].
    Cidr,
    /// A DNS label: the name of an object.
    DnsLabel,
    /// [`crate::values::Hostname`].
    Hostname,
    /// [`crate::values::Host`].
    Host,
    /// [`crate::values::Tag`].
    Tag,
    /// [`crate::values::Duration`].
    Duration,
    /// [`crate::values::Sha256`].
    Sha256,
    /// [`crate::values::ByteSize`].
    Bytes,
    /// [`crate::values::SshPublicKey`].
    SshPublicKey,
    /// [`crate::values::Url`].
    Url,
    /// [`crate::values::Schedule`].
    Schedule,
    /// [`crate::values::OwnerName`].
    OwnerName,
    /// A UUID: see [`crate::values::Uid`].
    Uid,
    /// A point in time (RFC 3339).
    Timestamp,
}

impl Semantic {
    /// The canonical spelling of `text`, which is the same for equal values.
    ///
    /// # Errors
    /// `text` does not have this form.
    pub fn canonical(self, text: &str) -> Result<String, BadValue> {
        use crate::values::{ByteSize, Cidr, Duid, Duration, Mac, Sha256, Timestamp, Uid};
        fn print<T: std::str::FromStr<Err = BadValue> + ToString>(text: &str) -> Result<String, BadValue> {
            text.parse::<T>().map(|value| value.to_string())
        }
        match self {
            Self::Mac => print::<Mac>(text),
            Self::Duid => print::<Duid>(text),
            Self::Cidr => print::<Cidr>(text),
            Self::Duration => print::<Duration>(text),
            Self::Sha256 => print::<Sha256>(text),
            Self::Bytes => print::<ByteSize>(text),
            Self::Uid => print::<Uid>(text),
            Self::Ip => text.parse::<std::net::IpAddr>().map(|ip| ip.to_string()).map_err(|_| {
                let hint = if text.contains('/') {
                    "an address alone, without a prefix length"
                } else {
                    "like 10.77.0.1 or 2001:db8::1"
                };
                BadValue::new(format!("{} is not an IP address", crate::values::quoted(text)), hint)
            }),
            Self::Timestamp => text.parse::<Timestamp>().map(|t| t.to_string()).map_err(|_| {
                BadValue::new(
                    format!("{} is not a point in time", crate::values::quoted(text)),
                    "RFC 3339, like 2026-01-31T12:00:00Z",
                )
            }),
            Self::DnsLabel => Naming::Label.check(text).map(|()| text.to_owned()),
            Self::Hostname => crate::values::check_hostname(text).map(|()| text.to_ascii_lowercase()),
            Self::Host => crate::values::check_host(text).map(|()| match text.parse::<std::net::IpAddr>() {
                Ok(ip) => ip.to_string(),
                Err(_) => text.to_ascii_lowercase(),
            }),
            Self::Tag => crate::values::check_tag(text).map(|()| text.to_owned()),
            Self::SshPublicKey => crate::values::canonical_ssh_key(text),
            Self::Url => crate::values::canonical_url(text),
            Self::Schedule => crate::values::canonical_schedule(text),
            Self::OwnerName => crate::values::check_owner(text).map(|()| text.to_ascii_lowercase()),
        }
    }

    /// The form's name in OpenAPI's `format` and in documentation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mac => "mac",
            Self::Duid => "duid",
            Self::Ip => "ip",
            Self::Cidr => "cidr",
            Self::DnsLabel => "dns-label",
            Self::Hostname => "hostname",
            Self::Host => "host",
            Self::Tag => "tag",
            Self::Duration => "duration",
            Self::Sha256 => "sha256",
            Self::Bytes => "bytes",
            Self::SshPublicKey => "ssh-key",
            Self::Url => "uri",
            Self::Schedule => "schedule",
            Self::OwnerName => "owner-name",
            Self::Uid => "uuid",
            Self::Timestamp => "date-time",
        }
    }

    /// A value of this form, for documentation and for hints.
    #[must_use]
    pub const fn example(self) -> &'static str {
        match self {
            Self::Mac => "52:54:00:12:34:56",
            Self::Duid => "00:04:6f:0d:1c:2e:5b:7a:4c:91:a8:3f:e2:64:b0:97:d5:18",
            Self::Ip => "10.77.0.1",
            Self::Cidr => "10.77.0.0/24",
            Self::DnsLabel => "node-1",
            Self::Hostname => "node-1.example.com",
            Self::Host => "10.77.0.9",
            Self::Tag => "gpu",
            Self::Duration => "10m",
            Self::Sha256 => "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            Self::Bytes => "16GiB",
            Self::SshPublicKey => {
                "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJhc2FsdCBleGFtcGxlIGtleSwgbm90IGEgcmVhbCAx me@example.com"
            }
            Self::Url => "https://images.example.com/debian",
            Self::Schedule => "6h",
            Self::OwnerName => "www",
            Self::Uid => "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e",
            Self::Timestamp => "2026-01-31T12:00:00Z",
        }
    }
}

/// Meaning of an absent field. `null` counts as absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Presence {
    /// The field must be present.
    Required,
    /// An absent field declares nothing.
    Optional,
    /// An absent field has this value.
    Default(Const),
    /// The region chooses a value and shows it in `status`.
    ServerChosen,
}

/// The value of an absent field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Const {
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A text, or a word of an enum.
    Str(&'static str),
    /// The empty list, set, map or object.
    Empty,
}

impl Const {
    /// The constant as JSON, for a field of type `ty`.
    #[must_use]
    pub fn json(self, ty: &Type) -> Value {
        match (self, ty) {
            (Self::Bool(value), _) => value.into(),
            (Self::Int(value), _) => value.into(),
            (Self::Str(value), _) => value.into(),
            (Self::Empty, Type::List(_) | Type::Set(_)) => Value::Array(Vec::new()),
            (Self::Empty, _) => Value::Object(serde_json::Map::new()),
        }
    }
}

/// Effect of a change of a field on running machines and services. Ordered: a later variant is stronger.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    Shape,
)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// No effect: a description.
    #[default]
    None,
    /// Services follow at once; machines keep running.
    Live,
    /// The change takes effect at the machine's next boot.
    Reboot,
    /// The machine is installed again. The write is refused unless the deployment allows it.
    Redeploy,
    /// The object is deleted and created again.
    Replace,
}

/// Causes that can change a status field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Only a change of a spec or of hardware. The field is part of Terraform's state.
    Stable,
    /// Any cause, at any time. Only the API shows the field, so that Terraform plans stay empty.
    Volatile,
}
