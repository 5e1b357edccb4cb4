//! Checks that an ID token is valid: issued by the issuer, for this region, now (OpenID Connect Core 1.0 §3.1.3.7). Pure: keys and
//! time are arguments.

use basalt_api::wire::MAX_ID_TOKEN_BYTES;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};

/// The accepted signature algorithms. Only the issuer has their private keys. HS256 uses a shared secret, and `none` has no signature.
const ALGORITHMS: [Algorithm; 4] = [Algorithm::RS256, Algorithm::PS256, Algorithm::ES256, Algorithm::EdDSA];

/// The longest subject, in ASCII characters (OpenID Connect Core 1.0 §2).
const SUBJECT: usize = 255;

/// The largest age of a token, in seconds. An older token does not come from a present login, and may be stolen. Issuers' tokens live for
/// minutes or hours.
const OLDEST: i64 = 12 * 3600;

/// The number of characters of a token's value that an error repeats.
const REPEATED: usize = 40;

/// The largest difference between clocks, in seconds.
const CLOCK_SLACK: i64 = 60;

/// The reason why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadToken {
    /// It is no JSON Web Token, or a claim has the wrong type.
    #[error("it is no ID token: {0}")]
    Malformed(String),
    /// Its signature algorithm is not accepted.
    #[error("it is signed by {0}; RS256, PS256, ES256 and EdDSA are taken")]
    Algorithm(String),
    /// The issuer has no key with the id in the token.
    #[error("it is signed with key {0:?}, which the issuer does not have")]
    Key(String),
    /// The signature does not match the key.
    #[error("its signature is not the issuer's")]
    Signature,
    /// Another issuer issued it.
    #[error("it is issued by {0:?}")]
    Issuer(String),
    /// It is for another client.
    #[error("it is for {0:?}")]
    Audience(String),
    /// It has expired.
    #[error("it ended {0} s ago")]
    Ended(i64),
    /// It is not valid yet.
    #[error("it begins in {0} s: compare the clocks")]
    Early(i64),
    /// It is another type of token, which does not identify a person.
    #[error("it is of the type {0:?}, not an ID token")]
    Type(String),
    /// It was issued too long ago.
    #[error("it was issued {0} s ago: log in to the issuer anew")]
    Old(i64),
    /// It belongs to another login.
    #[error("its nonce is not the one of this login")]
    Nonce,
}

impl BadToken {
    /// True if newer keys of the issuer could make it valid. Not all issuers name the key of a signature.
    pub(crate) const fn is_about_keys(&self) -> bool {
        matches!(self, Self::Key(_) | Self::Signature)
    }
}

/// The values that a token must have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// The issuer, as Settings name it.
    pub(crate) issuer: &'a str,
    /// The region's client id at the issuer.
    pub(crate) client_id: &'a str,
    /// The nonce that the client sent to the issuer.
    pub(crate) nonce: Option<&'a str>,
    /// The present time, in seconds since 1970.
    pub(crate) now: i64,
}

/// An issuer's public keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(Vec<Jwk>);

impl Keys {
    /// Reads a JWK set (RFC 7517 §5). Keys of unknown types, and keys for encryption, are left out.
    ///
    /// # Errors
    /// Fails if the text is no JWK set.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(serde::Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(json)?;
        let known = set.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        Ok(Self(known.filter(|key| key.common.public_key_use != Some(PublicKeyUse::Encryption)).collect()))
    }

    /// True if there are no keys.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys that may have signed with this header.
    fn of<'a>(&'a self, header: &'a Header) -> impl Iterator<Item = &'a Jwk> {
        self.0.iter().filter(|key| {
            let named = header.kid.as_ref().is_none_or(|kid| key.common.key_id.as_ref() == Some(kid));
            let algorithm = key.common.key_algorithm.map(|it| it.to_string());
            named && fits(key, header.alg) && algorithm.is_none_or(|it| it == format!("{:?}", header.alg))
        })
    }
}

/// True if the key's type fits the algorithm: a public RSA key must not be used as the secret of an HS256.
fn fits(key: &Jwk, algorithm: Algorithm) -> bool {
    match (&key.algorithm, algorithm) {
        (AlgorithmParameters::RSA(_), Algorithm::RS256 | Algorithm::PS256) => true,
        (AlgorithmParameters::EllipticCurve(key), Algorithm::ES256) => key.curve == EllipticCurve::P256,
        (AlgorithmParameters::OctetKeyPair(key), Algorithm::EdDSA) => key.curve == EllipticCurve::Ed25519,
        _ => false,
    }
}

fn header(token: &str) -> Result<Header, BadToken> {
    if token.len() > MAX_ID_TOKEN_BYTES {
        return Err(BadToken::Malformed(format!("it has {} bytes", token.len())));
    }
    let header = decode_header(token).map_err(|error| match named_algorithm(token) {
        Some(algorithm) => BadToken::Algorithm(algorithm),
        None => BadToken::Malformed(error.to_string()),
    })?;
    if !ALGORITHMS.contains(&header.alg) {
        return Err(BadToken::Algorithm(format!("{:?}", header.alg)));
    }
    // Access tokens (RFC 9068 §2.1) and logout tokens have their type here. ID tokens have none, or JWT.
    match header.typ.as_deref().filter(|typ| !typ.eq_ignore_ascii_case("JWT")) {
        Some(other) => Err(BadToken::Type(clipped(other))),
        None => Ok(header),
    }
}

fn clipped(text: &str) -> String {
    text.chars().take(REPEATED).collect()
}

/// The algorithm in a header that cannot be read otherwise.
fn named_algorithm(token: &str) -> Option<String> {
    use base64::Engine;
    let first = token.split('.').next()?;
    let json = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(first).ok()?;
    serde_json::from_slice::<Value>(&json).ok()?.get("alg")?.as_str().map(clipped)
}

/// Checks a token and returns its claims.
///
/// # Errors
/// [`BadToken`]; see [`BadToken::is_about_keys`].
pub(crate) fn verify(
    token: &str,
    keys: &Keys,
    expected: &Expected<'_>,
) -> Result<Map<String, Value>, BadToken> {
    let header = header(token)?;
    // The library checks only the signature. The rest is checked below, with the time from the argument.
    let mut signature = Validation::new(header.alg);
    signature.validate_exp = false;
    signature.validate_aud = false;
    signature.required_spec_claims.clear();
    let mut verdict = BadToken::Key(clipped(header.kid.as_deref().unwrap_or_default()));
    for key in keys.of(&header) {
        let Ok(key) = DecodingKey::from_jwk(key) else { continue };
        match decode::<Map<String, Value>>(token, &key, &signature) {
            Ok(decoded) => return claims(decoded.claims, expected),
            Err(error) => {
                verdict = match error.kind() {
                    jsonwebtoken::errors::ErrorKind::Json(_) => BadToken::Malformed(error.to_string()),
                    _ => BadToken::Signature,
                }
            }
        }
    }
    Err(verdict)
}

fn claims(claims: Map<String, Value>, expected: &Expected<'_>) -> Result<Map<String, Value>, BadToken> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
    let seconds = |name: &str| {
        let number = claims.get(name).and_then(Value::as_f64).filter(|it| it.abs() < 1e15);
        number.map(|it| it as i64).ok_or_else(|| BadToken::Malformed(format!("{name:?} is no time")))
    };
    if text("iss") != expected.issuer {
        return Err(BadToken::Issuer(text("iss").to_owned()));
    }
    let audiences: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    // If there are several audiences, `azp` names the party of the token, which must be this client (§3.1.3.7, 3 to 5).
    let party = claims.get("azp").map(|_| text("azp"));
    let is_ours = audiences.contains(&expected.client_id)
        && party.map_or(audiences.len() == 1, |party| party == expected.client_id);
    if !is_ours {
        return Err(BadToken::Audience(party.map_or_else(|| audiences.join(", "), str::to_owned)));
    }
    let ended = expected.now.saturating_sub(seconds("exp")?);
    if ended >= CLOCK_SLACK {
        return Err(BadToken::Ended(ended));
    }
    let age = expected.now.saturating_sub(seconds("iat")?);
    if age > OLDEST {
        return Err(BadToken::Old(age));
    }
    // A logout token (OpenID Connect Back-Channel Logout 1.0 §2.4).
    if claims.contains_key("events") {
        return Err(BadToken::Type("logout".to_owned()));
    }
    for begins in ["iat", "nbf"] {
        if begins == "nbf" && !claims.contains_key(begins) {
            continue;
        }
        let early = seconds(begins)?.saturating_sub(expected.now);
        if early > CLOCK_SLACK {
            return Err(BadToken::Early(early));
        }
    }
    if expected.nonce.is_some_and(|nonce| text("nonce") != nonce) {
        return Err(BadToken::Nonce);
    }
    let subject = text("sub");
    if !(1..=SUBJECT).contains(&subject.len()) || !subject.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Err(BadToken::Malformed("\"sub\" is not 1 to 255 characters of ASCII".to_owned()));
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    };
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::json;

    const NOW: i64 = 1_800_000_000;

    fn b64(bytes: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    struct Issuer {
        rsa: RsaKeyPair,
        ec: EcdsaKeyPair,
    }

    impl Issuer {
        fn new() -> Self {
            Self {
                rsa: RsaKeyPair::generate(KeySize::Rsa2048).unwrap(),
                ec: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            }
        }

        fn set(&self) -> Value {
            let rsa = self.rsa.public_key();
            let (n, e) = (
                rsa.modulus().big_endian_without_leading_zero(),
                rsa.exponent().big_endian_without_leading_zero(),
            );
            let point = self.ec.public_key().as_ref();
            json!({"keys": [
                {"kty": "RSA", "kid": "old", "use": "enc", "n": b64(n), "e": b64(e)},
                {"kty": "RSA", "kid": "rsa", "use": "sig", "alg": "RS256", "n": b64(n), "e": b64(e)},
                {"kty": "EC", "kid": "ec", "crv": "P-256", "x": b64(&point[1..33]), "y": b64(&point[33..])},
                {"kty": "from the future", "kid": "new"},
            ]})
        }

        fn keys(&self) -> Keys {
            Keys::parse(self.set().to_string().as_bytes()).unwrap()
        }

        fn sign(&self, header: &Value, claims: &Value) -> String {
            let text = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
            let random = SystemRandom::new();
            let signature = match header["alg"].as_str().unwrap() {
                "ES256" => self.ec.sign(&random, text.as_bytes()).unwrap().as_ref().to_vec(),
                "none" => Vec::new(),
                "HS256" => {
                    let der =
                        AsDer::<aws_lc_rs::encoding::PublicKeyX509Der<'_>>::as_der(self.rsa.public_key())
                            .unwrap();
                    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, der.as_ref());
                    aws_lc_rs::hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
                }
                _ => {
                    let mut signature = vec![0; self.rsa.public_modulus_len()];
                    self.rsa.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature).unwrap();
                    signature
                }
            };
            format!("{text}.{}", b64(signature))
        }
    }

    fn claims() -> Value {
        json!({"iss": "https://id.example.com", "aud": "basalt", "sub": "0815", "iat": NOW - 10, "exp": NOW + 300,
               "nonce": "n1", "groups": ["ops"]})
    }

    fn with(name: &str, value: Value) -> Value {
        let mut claims = claims();
        claims[name] = value;
        claims
    }

    fn expected() -> Expected<'static> {
        Expected { issuer: "https://id.example.com", client_id: "basalt", nonce: Some("n1"), now: NOW }
    }

    #[test]
    fn the_issuers_tokens_are_good() {
        let issuer = Issuer::new();
        for header in [
            json!({"alg": "RS256", "kid": "rsa"}),
            json!({"alg": "ES256", "kid": "ec"}),
            json!({"alg": "ES256"}),
        ] {
            let found = verify(&issuer.sign(&header, &claims()), &issuer.keys(), &expected()).unwrap();
            assert_eq!((&found["sub"], &found["groups"]), (&json!("0815"), &json!(["ops"])));
        }
        let several = with("aud", json!(["other", "basalt"]));
        let mut named = several.clone();
        named["azp"] = json!("basalt");
        let header = json!({"alg": "RS256", "kid": "rsa"});
        verify(&issuer.sign(&header, &named), &issuer.keys(), &expected()).unwrap();
        assert!(verify(&issuer.sign(&header, &several), &issuer.keys(), &expected()).is_err());
    }

    #[test]
    fn nobody_elses_tokens_are() {
        let (issuer, other) = (Issuer::new(), Issuer::new());
        let rsa = json!({"alg": "RS256", "kid": "rsa"});
        let attacks: Vec<(&str, String, BadToken)> = vec![
            (
                "no signature",
                issuer.sign(&json!({"alg": "none"}), &claims()),
                BadToken::Algorithm("none".into()),
            ),
            (
                "public key as secret",
                issuer.sign(&json!({"alg": "HS256", "kid": "rsa"}), &claims()),
                BadToken::Algorithm("HS256".into()),
            ),
            ("other key", other.sign(&rsa, &claims()), BadToken::Signature),
            (
                "unknown key",
                issuer.sign(&json!({"alg": "RS256", "kid": "x"}), &claims()),
                BadToken::Key("x".into()),
            ),
            (
                "a key that encrypts",
                issuer.sign(&json!({"alg": "RS256", "kid": "old"}), &claims()),
                BadToken::Key("old".into()),
            ),
            (
                "key of another sort",
                issuer.sign(&json!({"alg": "ES256", "kid": "rsa"}), &claims()),
                BadToken::Key("rsa".into()),
            ),
            (
                "issuer",
                issuer.sign(&rsa, &with("iss", json!("https://id.example.com/"))),
                BadToken::Issuer("https://id.example.com/".into()),
            ),
            (
                "audience",
                issuer.sign(&rsa, &with("aud", json!("grafana"))),
                BadToken::Audience("grafana".into()),
            ),
            (
                "party",
                issuer.sign(&rsa, &with("azp", json!("grafana"))),
                BadToken::Audience("grafana".into()),
            ),
            ("ended", issuer.sign(&rsa, &with("exp", json!(NOW - 60))), BadToken::Ended(60)),
            ("early", issuer.sign(&rsa, &with("nbf", json!(NOW + 61))), BadToken::Early(61)),
            ("of tomorrow", issuer.sign(&rsa, &with("iat", json!(NOW + 86_400))), BadToken::Early(86_400)),
            (
                "access token",
                issuer.sign(&json!({"alg": "RS256", "kid": "rsa", "typ": "at+jwt"}), &claims()),
                BadToken::Type("at+jwt".into()),
            ),
            ("logout token", issuer.sign(&rsa, &with("events", json!({}))), BadToken::Type("logout".into())),
            ("found", issuer.sign(&rsa, &with("iat", json!(NOW - 43_201))), BadToken::Old(43_201)),
            ("nonce", issuer.sign(&rsa, &with("nonce", json!("n2"))), BadToken::Nonce),
        ];
        for (name, token, wanted) in attacks {
            assert_eq!(verify(&token, &issuer.keys(), &expected()).unwrap_err(), wanted, "{name}");
        }
        for (name, value) in [
            ("exp", Value::Null),
            ("iat", json!("now")),
            ("sub", json!("")),
            ("sub", json!(7)),
            ("sub", json!("a\0b")),
            ("sub", json!("hé")),
            ("sub", json!("x".repeat(256))),
        ] {
            let token = issuer.sign(&rsa, &with(name, value));
            let error = verify(&token, &issuer.keys(), &expected()).unwrap_err();
            assert!(matches!(error, BadToken::Malformed(_)), "{name}: {error}");
        }
        let good = issuer.sign(&rsa, &claims());
        let mut parts: Vec<&str> = good.split('.').collect();
        let forged = b64(with("sub", json!("root")).to_string());
        parts[1] = &forged;
        assert_eq!(verify(&parts.join("."), &issuer.keys(), &expected()).unwrap_err(), BadToken::Signature);
        for text in ["", "a.b", "a.b.c", "....", &"x".repeat(MAX_ID_TOKEN_BYTES + 1)] {
            assert!(matches!(verify(text, &issuer.keys(), &expected()), Err(BadToken::Malformed(_))));
        }
    }
}
