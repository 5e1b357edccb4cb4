//! Rules for every error of the provider that a test provokes: the title is not a sentence, the error names its object, and it
//! gives a reason and a remedy.

/// Beginnings of the titles of Terraform's own errors.
const OF_TERRAFORM: &[&str] = &[
    "Error in function call",
    "Failed to ",
    "Incorrect attribute value type",
    "Instance cannot be destroyed",
    "Invalid ",
    "Missing ",
    "Module not installed",
    "Plugin ",
    "Reference to undeclared",
    "Resource ",
    "Unsupported ",
    "execution halted",
    "local-exec provisioner error",
];

/// Terraform's texts after an error, which are not part of it.
const BEHIND: &[&str] = &["Warning: ", "Terraform left the following", "Terraform encountered an error"];

/// An error in Terraform's output.
#[derive(Debug, Default)]
struct Told {
    title: String,
    /// The address of the resource that Terraform names, if any.
    with: Option<String>,
    detail: String,
}

/// Checks every error in Terraform's output.
pub(crate) fn hold_to_rules(said: &str) {
    for told in told(said).iter().filter(|told| !OF_TERRAFORM.iter().any(|of| told.title.starts_with(of))) {
        let broken = broken_rules(told);
        assert!(broken.is_empty(), "{broken:?}: {told:#?}");
    }
}

fn broken_rules(told: &Told) -> Vec<&'static str> {
    let is_capital = told.title.starts_with(|first: char| first.is_uppercase());
    let is_whose = told.with.is_some() || told.title.contains('"');
    // A command to type may be the end, without a full stop.
    let is_whole = told.detail.ends_with(['.', ')']) || told.detail.contains("terraform import ");
    let has_two_parts = ["; ", ". ", ", and must be "].iter().any(|between| told.detail.contains(between));
    let rules = [
        (is_capital && !told.title.ends_with('.'), "a title begins with a capital letter and is no sentence"),
        (is_whose, "an error says whose it is, in its title or by its place"),
        (is_whole, "a reason is a sentence"),
        (has_two_parts, "there is a reason, and what to do about it"),
    ];
    rules.into_iter().filter(|(holds, _)| !holds).map(|(_, rule)| rule).collect()
}

/// The errors in lines without frames: title, place with a piece of the configuration, detail.
fn told(said: &str) -> Vec<Told> {
    let mut all: Vec<Told> = Vec::new();
    let mut is_error = false;
    for line in said.lines() {
        if let Some(title) = line.strip_prefix("Error: ") {
            is_error = true;
            all.push(Told { title: title.to_owned(), ..Told::default() });
            continue;
        }
        is_error &= !BEHIND.iter().any(|other| line.starts_with(other));
        let Some(told) = all.last_mut().filter(|_| is_error) else { continue };
        let number = line.split(": ").next().unwrap_or_default();
        let is_code = number.parse::<u32>().is_ok() || line.starts_with('├');
        if told.detail.is_empty()
            && let Some(with) = line.strip_prefix("with ")
        {
            told.with = Some(with.trim_end_matches(',').to_owned());
        } else if !(line.is_empty() || is_code || (told.detail.is_empty() && line.starts_with("on "))) {
            told.detail = format!("{} {line}", told.detail).trim_start().to_owned();
        }
    }
    all
}

#[test]
fn the_rules_find_what_breaks_them() {
    let good = "Error: Not allowed: Zone \"a\"\n\nwith basalt_zone.a,\non main.tf line 5, in resource:\n5: name = 1\n\n\
                It is not\nallowed. Ask somebody.\n\nWarning: else\n\nmore\n";
    hold_to_rules(good);
    assert_eq!(told(good)[0].detail, "It is not allowed. Ask somebody.");
    let bad = told("Error: it is wrong.\n\nno reason\n");
    assert_eq!(broken_rules(&bad[0]).len(), 4, "{bad:?}");
}
