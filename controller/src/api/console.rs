//! Serves the console: its page at `/` and below `/ui/`, and its files. `make ui` builds them from `controller/ui`.

use super::problem::{Answer, Refusal};
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use basalt_api::ProblemCode;

/// The files of the build: path below `/ui/`, and content.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// The directory of files whose names contain a hash of their content.
const HASHED: &str = "assets/";

/// The console loads and requests only what this region serves, and no other site can show it in a frame.
const POLICY: &str =
    "default-src 'self'; frame-ancestors 'none'; object-src 'none'; form-action 'none'; base-uri 'none'";

/// The page at `/`. Its script redirects to `/ui/machines`.
pub(super) async fn home() -> Answer<Response> {
    index()
}

/// A file of the build. Any other path is a page of the console, so it returns the index page.
pub(super) async fn page(Path(path): Path<String>) -> Answer<Response> {
    match file(&path) {
        Some(bytes) if path != "index.html" => {
            let keep =
                if path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
            Ok(shown(media_type(&path), keep, bytes))
        }
        None if path.starts_with(HASHED) => {
            let detail =
                format!("the console has no file {path:?}: it is of another version; load the page again");
            Err(Refusal::new(ProblemCode::NotFound, detail))
        }
        _ => index(),
    }
}

fn index() -> Answer<Response> {
    let bytes = file("index.html")
        .ok_or_else(|| Refusal::new(ProblemCode::Internal, "this region was built without its console"))?;
    Ok(shown("text/html; charset=utf-8", "no-store", bytes))
}

fn file(path: &str) -> Option<&'static [u8]> {
    FILES.iter().find(|(name, _)| *name == path).map(|(_, bytes)| *bytes)
}

fn shown(media_type: &'static str, keep: &'static str, bytes: &'static [u8]) -> Response {
    let headers: [(HeaderName, HeaderValue); 4] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (header::CACHE_CONTROL, HeaderValue::from_static(keep)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, bytes).into_response()
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        Some("md" | "txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(response: &Response, name: HeaderName) -> &str {
        response.headers().get(name).unwrap().to_str().unwrap()
    }

    #[tokio::test]
    async fn files_with_a_hash_are_kept_for_ever_and_the_page_never() {
        let (hashed, _) = FILES.iter().find(|(path, _)| path.starts_with(HASHED)).unwrap();
        let script = page(Path((*hashed).to_owned())).await.unwrap();
        assert_eq!(header(&script, header::CACHE_CONTROL), "public, max-age=31536000, immutable");
        for path in ["machines/web1", "index.html"] {
            let own = page(Path(path.to_owned())).await.unwrap();
            assert_eq!(header(&own, header::CACHE_CONTROL), "no-store", "{path}");
            assert_eq!(header(&own, header::CONTENT_SECURITY_POLICY), POLICY);
        }
        assert!(
            page(Path("assets/gone-0123.js".to_owned())).await.is_err(),
            "no page stands for a missing script"
        );
    }

    #[test]
    fn every_file_has_a_type() {
        let unknown = FILES.iter().map(|(path, _)| *path).filter(|path| *path != "index.html");
        let unknown: Vec<_> = unknown.filter(|path| media_type(path) == "application/octet-stream").collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
