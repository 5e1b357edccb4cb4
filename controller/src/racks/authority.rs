//! The region's certificate authority: it signs racks' certificates, and the region's own for the link with them.
//!
//! One authority a region; every region process loads the same key, sealed, from the database. There is no web of
//! trust: a rack pins this one certificate (its fingerprint travels in the join token), a region accepts client
//! certificates of this one issuer and looks the rack up by the uid in the subject.

use std::time::{Duration, SystemTime};

use basalt_api::values::Uid;
use basalt_proto::REGION_SERVER_NAME;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// How long the authority's own certificate lasts.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(20 * 365 * 86_400);
/// How long a rack's certificate lasts. Racks renew when a third is left.
const RACK_LIFETIME: Duration = Duration::from_secs(90 * 86_400);
/// How long a region process's certificate lasts; it makes a new one at every start, and each month.
const SERVER_LIFETIME: Duration = Duration::from_secs(365 * 86_400);
/// Certificates begin a little in the past: clocks differ.
const CLOCK_SLACK: Duration = Duration::from_secs(300);

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// What is stored as the authority's key or certificate cannot be read.
    #[error(
        "the stored certificate authority cannot be read: restore it from a backup, or check --seal-key-file"
    )]
    Unreadable(#[source] rcgen::Error),
    /// A rack sent something that is not a certificate request.
    #[error("the certificate request cannot be read; it must be PKCS#10 in DER, signed with its own key")]
    BadRequest(#[source] rcgen::Error),
    /// Signing failed.
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
    /// [`AuthorityError::Signing`] when the system has no randomness.
    pub fn generate(now: SystemTime) -> Result<(Vec<u8>, Vec<u8>), AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(AuthorityError::Signing)?;
        let mut params = lifetime(CertificateParams::default(), now, AUTHORITY_LIFETIME);
        params.distinguished_name = common_name("Basalt region");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).map_err(AuthorityError::Signing)?;
        Ok((certificate.der().to_vec(), key.serialize_der()))
    }

    /// Loads what [`Authority::generate`] made.
    ///
    /// # Errors
    /// [`AuthorityError::Unreadable`] when it is not that.
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

    /// Signs a rack's request. Nothing of the request but its public key is used; the subject becomes the rack's uid.
    ///
    /// Returns the certificate (DER) and when it ends.
    ///
    /// # Errors
    /// [`AuthorityError::BadRequest`] when the request cannot be read, or was not signed with its own key.
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

    /// A server certificate for one region process, with its key. Its common name is the process: region processes tell each
    /// other apart by it ([`own_address`](super::own_address)), while racks look at the DNS name alone.
    ///
    /// # Errors
    /// [`AuthorityError::Signing`] when the system has no randomness.
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
