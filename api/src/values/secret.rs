//! Secrets in specs: written once, never read back.

use super::Revision;
use crate::{Described, Type};
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A secret field. A client writes a string. A read shows `{"set": true, "revision": 4}`. A write of that form, or without the field, keeps
/// the secret. `null` clears it.
///
/// `Debug` and `Serialize` never show the plaintext.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The plaintext, from a client or from the seal.
    Plain(String),
    /// The read form.
    Sealed {
        /// Rises when the plaintext changes; 0 if the client sent none.
        revision: Revision,
    },
}

impl Secret {
    /// The plaintext, if this value holds it.
    #[must_use]
    pub fn expose(&self) -> Option<&str> {
        match self {
            Self::Plain(text) => Some(text),
            Self::Sealed { .. } => None,
        }
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::Plain(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("set", &true)?;
        if let Self::Sealed { revision } = self
            && revision.get() > 0
        {
            map.serialize_entry("revision", revision)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a string, or {"set": true, "revision": n} as read"#)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Secret, E> {
                Ok(Secret::Plain(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Secret, A::Error> {
                let mut revision = Revision::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "set" => {
                            map.next_value::<bool>()?;
                        }
                        "revision" => revision = map.next_value()?,
                        other => return Err(A::Error::unknown_field(other, &["set", "revision"])),
                    }
                }
                Ok(Secret::Sealed { revision })
            }
        }
        from.deserialize_any(Form)
    }
}

impl Described for Secret {
    const TYPE: Type = Type::Secret;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plaintext_is_never_shown() {
        let secret = Secret::from("hunter2");
        assert_eq!(format!("{secret:?}"), "(secret)");
        assert_eq!(serde_json::to_string(&secret).unwrap(), r#"{"set":true}"#);
        assert_eq!(secret.expose(), Some("hunter2"));
    }

    #[test]
    fn both_forms_are_read() {
        assert_eq!(serde_json::from_str::<Secret>(r#""x""#).unwrap(), Secret::from("x"));
        let sealed: Secret = serde_json::from_str(r#"{"set":true,"revision":4}"#).unwrap();
        assert_eq!(sealed, Secret::Sealed { revision: Revision::new(4) });
        assert!(serde_json::from_str::<Secret>(r#"{"plain":"x"}"#).is_err());
    }
}
