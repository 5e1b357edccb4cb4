//! The region's certificate authority: it signs racks' certificates, and the region's own for the link with them.
//!
//! There is one authority per region. Every region process loads the same key, which is sealed in the database. Only this one authority is
//! trusted: a rack pins its certificate, whose fingerprint is in the join token. A region accepts client certificates of this issuer
//! only, and finds the rack by the uid in the subject.

use std::time::{Duration, SystemTime};

use basalt_api::values::Uid;
use basalt_proto::REGION_SERVER_NAME;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The lifetime of the authority's own certificate.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(20 * 365 * 86_400);
/// The lifetime of a rack's certificate. Racks renew it when a third is left.
const RACK_LIFETIME: Duration = Duration::from_secs(90 * 86_400);
/// The lifetime of a region process's certificate. The process makes a new one at every start, and each month.
const SERVER_LIFETIME: Duration = Duration::from_secs(365 * 86_400);
/// The time by which certificates begin in the past, because clocks differ.
const CLOCK_SLACK: Duration = Duration::from_secs(300);

/// The reason why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The stored key or certificate of the authority cannot be read.
    #[error(
        "the stored certificate authority cannot be read: restore it from a backup, or check --seal-key-file"
    )]
    Unreadable(#[source] rcgen::Error),
    /// A rack sent something that is not a certificate request.
    #[error("the certificate request cannot be read; it must be PKCS#10 in DER, signed with its own key")]
    BadRequest(#[source] rcgen::Error),
    /// The library could not sign.
    #[error("a certificate could not be signed")]
    Signing(#[source] rcgen::Error),
}

/// The authority: its certificate and its key.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes a new authority: certificate and private key (PKCS#8), both DER.
    ///
    /// # Errors
    /// [`AuthorityError::Signing`]: the system gives no random bytes.
    pub fn generate(now: SystemTime) -> Result<(Vec<u8>, Vec<u8>), AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(AuthorityError::Signing)?;
        let mut params = lifetime(CertificateParams::default(), now, AUTHORITY_LIFETIME);
        params.distinguished_name = common_name("Basalt region");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).map_err(AuthorityError::Signing)?;
        Ok((certificate.der().to_vec(), key.serialize_der()))
    }

    /// Loads an authority that [`Authority::generate`] made.
    ///
    /// # Errors
    /// [`AuthorityError::Unreadable`]: the bytes are no such authority.
    pub fn load(certificate_der: Vec<u8>, key_der: &[u8]) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pkcs8_der_and_sign_algo(
            &PrivatePkcs8KeyDer::from(key_der),
            &PKCS_ECDSA_P256_SHA256,
        )
        .map_err(AuthorityError::Unreadable)?;
        let certificate = CertificateDer::from(certificate_der);
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(AuthorityError::Unreadable)?;
        Ok(Self { certificate, issuer })
    }

    /// The authority's certificate.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Signs a rack's request. Only the public key of the request is used; the subject becomes the rack's uid.
    ///
    /// Returns the certificate (DER) and its end.
    ///
    /// # Errors
    /// [`AuthorityError::BadRequest`]: the request cannot be read, or was not signed with its own key.
    pub fn sign_rack(
        &self,
        request_der: &[u8],
        rack_uid: &str,
        now: SystemTime,
    ) -> Result<(Vec<u8>, SystemTime), AuthorityError> {
        let mut request =
            CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request_der))
                .map_err(AuthorityError::BadRequest)?;
        let mut params = lifetime(CertificateParams::default(), now, RACK_LIFETIME);
        params.distinguished_name = common_name(rack_uid);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        request.params = params;
        let certificate = request.signed_by(&self.issuer).map_err(AuthorityError::Signing)?;
        Ok((certificate.der().to_vec(), now + RACK_LIFETIME))
    }

    /// A server certificate for one region process, with its key. Its common name is the process's id, by which region processes
    /// recognise each other ([`own_address`](super::own_address)). Racks check only the DNS name.
    ///
    /// # Errors
    /// [`AuthorityError::Signing`]: the system gives no random bytes.
    pub fn server_identity(
        &self,
        process: Uid,
        now: SystemTime,
    ) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(AuthorityError::Signing)?;
        let params =
            CertificateParams::new(vec![REGION_SERVER_NAME.to_owned()]).map_err(AuthorityError::Signing)?;
        let mut params = lifetime(params, now, SERVER_LIFETIME);
        params.distinguished_name = common_name(&process.to_string());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer).map_err(AuthorityError::Signing)?;
        Ok((certificate.der().clone(), PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()))))
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

fn lifetime(mut params: CertificateParams, now: SystemTime, lifetime: Duration) -> CertificateParams {
    params.not_before = (now - CLOCK_SLACK).into();
    params.not_after = (now + lifetime).into();
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> Authority {
        let (certificate, key) = Authority::generate(SystemTime::now()).unwrap();
        Authority::load(certificate, &key).unwrap()
    }

    #[test]
    fn signs_the_key_of_a_request_under_the_uid_the_region_chose() {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut asked = CertificateParams::default();
        asked.distinguished_name = common_name("somebody-else");
        let request = asked.serialize_request(&key).unwrap();
        let (der, _) = authority().sign_rack(request.der(), "0197-rack", SystemTime::now()).unwrap();
        let (_, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert_eq!(certificate.subject().to_string(), "CN=0197-rack");
        assert!(!certificate.is_ca());
    }

    #[test]
    fn refuses_what_is_not_a_request() {
        assert!(matches!(
            authority().sign_rack(b"hello", "x", SystemTime::now()),
            Err(AuthorityError::BadRequest(_))
        ));
    }

    #[test]
    fn refuses_a_key_that_is_not_one() {
        let (certificate, _) = Authority::generate(SystemTime::now()).unwrap();
        assert!(matches!(Authority::load(certificate, b"key"), Err(AuthorityError::Unreadable(_))));
    }
}
