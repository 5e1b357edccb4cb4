//! The manual: README, `docs/` and `provider/docs` of the repository, as they were when this program was built.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use basalt_api::ProblemCode;

use super::super::problem::{Answer, Refusal};
use super::{escaped, layout, markdown};

/// Path in the repository, and text, in the order of the paths.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// The page of the Terraform provider.
pub(super) const PROVIDER: &str = "/pages/provider.index";

/// Folders in the order of the list of pages, each with its heading.
const FOLDERS: &[(&str, &str)] = &[
    ("", "The repository"),
    ("docs/guides/", "Setting it up and running it"),
    ("docs/concepts/", "Concepts"),
    ("provider/docs/", "Terraform provider"),
    ("provider/docs/guides/", "Terraform provider: guides"),
    ("provider/docs/resources/", "Terraform provider: resources"),
    ("provider/docs/data-sources/", "Terraform provider: data sources"),
    ("provider/docs/list-resources/", "Terraform provider: list resources"),
    ("provider/docs/ephemeral-resources/", "Terraform provider: ephemeral resources"),
    ("provider/docs/actions/", "Terraform provider: actions"),
    ("provider/docs/functions/", "Terraform provider: functions"),
    ("docs/", "How it is put together"),
    ("docs/decisions/", "Decisions: why it is so"),
];

/// All pages, by folder.
pub(super) fn contents() -> String {
    let mut body = format!("<h1>Basalt {}: the manual</h1>{}", env!("CARGO_PKG_VERSION"), whereabouts());
    let is_listed = |folder: &str| FOLDERS.iter().any(|(listed, _)| *listed == folder);
    let others: BTreeSet<&str> =
        PAGES.iter().map(|(path, _)| folder_of(path)).filter(|it| !is_listed(it)).collect();
    for (folder, what) in FOLDERS.iter().copied().chain(others.into_iter().map(|folder| (folder, folder))) {
        let _infallible = write!(body, "<h2 id=\"{}\">{what}</h2><nav>", folder.trim_end_matches('/'));
        let in_folder = PAGES.iter().filter(|(path, _)| folder_of(path) == folder);
        for (path, text) in in_folder {
            let _infallible =
                write!(body, "<a href=\"{}\">{}</a>", address(path), escaped(&title(path, text)));
        }
        body.push_str("</nav>");
    }
    layout("Basalt: manual", &body)
}

/// A table of everything else that people read in this region.
fn whereabouts() -> String {
    format!(
        "<table>\
         <tr><th>where<th>what\
         <tr><td><a href=\"/\">/</a><td>the console\
         <tr><td><a href=\"/docs\">/docs</a><td>the API: each endpoint, field, answer and error, with examples\
         <tr><td><a href=\"/openapi.json\">/openapi.json</a><td>the same for programs (OpenAPI 3.1)\
         <tr><td><a href=\"{PROVIDER}\">{PROVIDER}</a><td>the Terraform provider: resources, data sources, actions, functions and guides\
         <tr><td><a href=\"/version\">/version</a>, <a href=\"/healthz\">/healthz</a>, <a href=\"/readyz\">/readyz</a><td>\
         the version; whether the process runs, and can serve requests\
         <tr><td><code>/metrics</code><td>counts for Prometheus; needs a token\
         <tr><td><code>/api/v1</code><td>the API itself; needs a token\
         </table>\
         <h2>To begin with</h2>\
         <pre>export BASALT_ENDPOINT=https://HOST:5240\nbasalt login NAME\nbasalt get machines</pre>\
         <p>Terraform installs the provider from here, where the region has a certificate:</p>\
         <pre>terraform {{\n  required_providers {{\n    basalt = {{ source = \"HOST:5240/basalt-metal/basalt\" }}\n  }}\n}}</pre>"
    )
}

/// The page of this name, as HTML.
pub(super) fn page(name: &str) -> Answer<String> {
    let found = PAGES.iter().find(|(path, _)| page_name(path) == name);
    let Some((path, text)) = found else {
        let detail = format!("there is no page {name:?}: /pages lists them");
        return Err(Refusal::new(ProblemCode::NotFound, detail));
    };
    let body = markdown::page(without_head(text), |to| link(path, to));
    Ok(layout(&title(path, text), &body))
}

fn folder_of(path: &str) -> &str {
    path.rfind('/').map_or("", |end| path.get(..=end).unwrap_or_default())
}

/// `provider/docs/resources/machine.md` is `provider.resources.machine`.
fn page_name(path: &str) -> String {
    let path = path.strip_suffix(".md").unwrap_or(path);
    let path = path.strip_prefix("docs/").unwrap_or(path);
    path.replace("provider/docs/", "provider/").replace('/', ".")
}

fn address(path: &str) -> String {
    format!("/pages/{}", page_name(path))
}

/// The first heading, or the title that the registry shows.
fn title(path: &str, text: &str) -> String {
    let heading = without_head(text).lines().find_map(|line| line.strip_prefix("# "));
    heading.map_or_else(|| page_name(path), |heading| heading.replace('`', ""))
}

/// The text behind the registry's head.
fn without_head(text: &str) -> &str {
    let behind = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n"));
    behind.map_or(text, |(_, text)| text)
}

/// A link of a page: to another page, to the list of a folder, or to the repository.
fn link(from: &str, to: &str) -> String {
    if to.starts_with('#') || to.contains("://") {
        return to.to_owned();
    }
    let (path, anchor) = to.split_once('#').unwrap_or((to, ""));
    let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
    let path = resolved(from, path);
    let is_page = |path: &str| PAGES.binary_search_by(|(page, _)| (*page).cmp(path)).is_ok();
    let readme = format!("{path}/README.md");
    if is_page(&path) {
        format!("{}{anchor}", address(&path))
    } else if is_page(&readme) {
        format!("{}{anchor}", address(&readme))
    } else if FOLDERS.iter().any(|(folder, _)| folder.trim_end_matches('/') == path) {
        format!("/pages#{path}")
    } else {
        format!("{}/blob/main/{path}{anchor}", env!("CARGO_PKG_REPOSITORY"))
    }
}

/// A path beside a file, from the top of the repository.
fn resolved(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder_of(from).split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulldown_cmark::{Event, Parser, Tag};
    use std::path::Path;

    #[test]
    fn every_page_is_in_the_contents_and_can_be_read() {
        let contents = contents();
        assert!(PAGES.len() > 100, "{} pages", PAGES.len());
        for (path, _) in PAGES {
            assert!(contents.contains(&format!("href=\"{}\"", address(path))), "{path}");
            assert!(page(&page_name(path)).unwrap().contains("<h1"), "{path}");
        }
        let refused = page("no.such.page").unwrap_err();
        assert!(format!("{refused:?}").contains("/pages lists them"), "{refused:?}");
    }

    #[test]
    fn the_contents_lead_to_everything_else_that_people_read() {
        let contents = contents();
        for path in ["/", "/docs", "/openapi.json", PROVIDER, "/healthz"] {
            assert!(contents.contains(&format!("href=\"{path}\"")), "{path}");
        }
    }

    #[test]
    fn every_link_of_a_page_leads_somewhere() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (path, text) in PAGES {
            for event in Parser::new(without_head(text)) {
                let Event::Start(Tag::Link { dest_url, .. }) = event else { continue };
                if dest_url.contains("://") {
                    continue;
                }
                let (file, anchor) = dest_url.split_once('#').unwrap_or((&dest_url, ""));
                let file = if file.is_empty() { (*path).to_owned() } else { resolved(path, file) };
                assert!(top.join(&file).exists(), "{path} links {dest_url}, and there is no {file}");
                let Some((_, target)) = PAGES.iter().find(|(page, _)| *page == file) else { continue };
                let rendered = markdown::page(without_head(target), str::to_owned);
                assert!(
                    anchor.is_empty() || rendered.contains(&format!("id=\"{anchor}\"")),
                    "{path} links {dest_url}, and {file} has no such heading"
                );
            }
        }
    }

    #[test]
    fn links_lead_to_pages_folders_and_the_repository() {
        let from = "docs/concepts/racks.md";
        assert_eq!(link(from, "security.md#audit"), "/pages/concepts.security#audit");
        assert_eq!(link(from, "../decisions"), "/pages/decisions.README");
        assert_eq!(link(from, "../../provider/docs/resources"), "/pages#provider/docs/resources");
        assert_eq!(link("README.md", "docs/concepts"), "/pages/concepts.README");
        assert_eq!(link(from, "#audit"), "#audit");
        let example = link(from, "../../examples/storage/main.tf");
        assert!(example.ends_with("/blob/main/examples/storage/main.tf"), "{example}");
        assert_eq!(address("provider/docs/index.md"), PROVIDER);
    }
}
