//! Every error of the provider that a test provokes is held to the same rules, whatever else the test looks for: its title is no
//! sentence, it says whose it is, and it gives a reason and what to do about it.

/// How the titles of errors begin that Terraform itself makes up.
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

/// What Terraform says behind an error, and not as part of it.
const BEHIND: &[&str] = &["Warning: ", "Terraform left the following", "Terraform encountered an error"];

/// An error as Terraform shows it.
#[derive(Debug, Default)]
struct Told {
    title: String,
    /// The address that Terraform puts it down to, if any.
    with: Option<String>,
    detail: String,
}

/// Looks at every error in what Terraform said.
pub(crate) fn hold_to_rules(said: &str) {
    for told in told(said).iter().filter(|told| !OF_TERRAFORM.iter().any(|of| told.title.starts_with(of))) {
        let broken = broken_rules(told);
        assert!(broken.is_empty(), "{broken:?}: {told:#?}");
    }
}

fn broken_rules(told: &Told) -> Vec<&'static str> {
    let is_capital = told.title.starts_with(|first: char| first.is_uppercase());
    let is_whose = told.with.is_some() || told.title.contains('"');
    // What to type stands at the end by itself.
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

/// The errors, of lines without their frames: title, place with a piece of the configuration, detail.
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
