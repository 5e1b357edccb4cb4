//! How racks answer for a host name (`GET /api/v1/names/{name}`).
//!
//! For a caller that is limited to pools, machines and deployments of other pools have no names: a hidden name reads as a missing one.

use super::App;
use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::NoParameters;
use crate::driver::answers::names::Asked;
use axum::Json;
use axum::extract::{Path, State};
use basalt_api::FieldCode;
use basalt_api::wire::NameReport;
use std::net::IpAddr;

/// Characters of a name (RFC 1035 §2.3.4, without the lengths of labels).
const LONGEST_NAME: usize = 253;
/// Characters of a label.
const LONGEST_LABEL: usize = 63;

pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    Path(asked): Path<String>,
    _: NoParameters,
) -> Answer<Json<NameReport>> {
    let asked = read_name(&asked)?;
    let pools = caller.rights.visible_pools().map(|pools| pools.into_iter().collect::<Vec<_>>());
    let machinery = app
        .machinery()
        .cloned()
        .ok_or_else(|| Refusal::unavailable("this region's driver does not run yet"))?;
    Ok(Json(machinery.explain_name(&asked, pools.as_deref()).await?))
}

fn read_name(text: &str) -> Answer<Asked> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Asked::Address(address));
    }
    let (name, is_whole) = text.strip_suffix('.').map_or((text, false), |name| (name, true));
    let is_label = |label: &str| {
        let is_sound = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '*' | '/');
        (1..=LONGEST_LABEL).contains(&label.len()) && label.chars().all(is_sound)
    };
    if name.len() > LONGEST_NAME || !name.split('.').all(is_label) {
        let message = "it is neither a host name nor an address";
        return Err(Refusal::field(
            "/name",
            FieldCode::Format,
            message,
            "web1, web1.lab.example or 10.77.0.9; a name in another script in its form xn--…",
        ));
    }
    let name = name.to_ascii_lowercase();
    Ok(if is_whole || name.contains('.') { Asked::Whole(name) } else { Asked::Label(name) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_labels_of_letters_digits_and_hyphens() {
        assert_eq!(read_name("Web1").unwrap(), Asked::Label("web1".to_owned()));
        assert_eq!(read_name("example.").unwrap(), Asked::Whole("example".to_owned()));
        assert_eq!(read_name("_x._tcp.Lab.example").unwrap(), Asked::Whole("_x._tcp.lab.example".to_owned()));
        assert_eq!(read_name("fd00::1").unwrap(), Asked::Address("fd00::1".parse().unwrap()));
        let long = "x".repeat(64);
        for bad in ["", ".", "a..b", "a b", "ä.example", "a\0", "a\\.b", &long, &"x.".repeat(128)] {
            assert!(read_name(bad).is_err(), "{bad:?}");
        }
    }
}
