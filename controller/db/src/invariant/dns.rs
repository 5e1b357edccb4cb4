//! Two records must not be equal, and a name with a CNAME must have no other record (RFC 1034 §3.6.2, RFC 2181 §10.1).

use super::{Subject, of_kind};
use crate::StoreError;
use crate::store::Tx;
use basalt_api::kinds::{RecordData, RecordType};
use basalt_api::{FieldCode, FieldError};

/// Deletes the subjects' rows.
pub(super) async fn clear(tx: &mut Tx, subjects: &[Subject<'_>]) -> Result<(), StoreError> {
    let uids: Vec<uuid::Uuid> = of_kind("DnsRecord", subjects).map(|subject| subject.uid.get()).collect();
    if !uids.is_empty() {
        sqlx::query!("delete from dns_record where record = any($1)", &uids).execute(&mut **tx).await?;
    }
    Ok(())
}

/// Writes the subject's row again after [`clear`].
pub(super) async fn write(tx: &mut Tx, subject: &Subject<'_>) -> Result<Vec<FieldError>, StoreError> {
    let (Some(domain), Some(owner), Some(rtype), Some(data)) = (
        subject.references.get("/domain"),
        subject.text("/owner_name"),
        subject.text("/type").and_then(|word| word.parse::<RecordType>().ok()),
        subject.text("/data"),
    ) else {
        return Ok(Vec::new());
    };
    let Ok(data) = RecordData::read(rtype, data) else { return Ok(Vec::new()) };
    let (owner, data) = (owner.to_ascii_lowercase(), data.to_string());
    let cname = RecordType::Cname.as_str();
    let others = sqlx::query!(
        r#"select o.name, r.type = $3 and r.data_sha256 = sha256(convert_to($4, 'UTF8')) as "same!", r.type
           from dns_record r join object o on o.uid = r.record
           where r.domain = $1 and r.owner_name = $2 and r.record <> $6
             and ((r.type = $3 and r.data_sha256 = sha256(convert_to($4, 'UTF8'))) or r.type = $5 or $3 = $5)
           order by o.name"#,
        domain.get(),
        owner,
        rtype.as_str(),
        data,
        cname,
        subject.uid.get()
    );
    let others = others.fetch_all(&mut **tx).await?;
    if !others.is_empty() {
        let error = |other: &str, same: bool, theirs: &str| match same {
            true => {
                let message = format!("DnsRecord {other:?} is {owner} {rtype} {data} already");
                FieldError::new("/data", FieldCode::Overlap, message, "a domain has each record once")
            }
            false => {
                let message =
                    format!("{owner} has the record {other:?} of type {theirs}, and a CNAME stands alone");
                let hint = "another name, or remove the other record first";
                FieldError::new("/owner_name", FieldCode::Overlap, message, hint)
            }
        };
        return Ok(others.iter().map(|o| error(&o.name, o.same, &o.r#type)).collect());
    }
    let insert = sqlx::query!(
        "insert into dns_record (record, domain, owner_name, type, data, data_sha256)
         values ($1, $2, $3, $4, $5, sha256(convert_to($5, 'UTF8')))",
        subject.uid.get(),
        domain.get(),
        owner,
        rtype.as_str(),
        data
    );
    insert.execute(&mut **tx).await?;
    Ok(Vec::new())
}
