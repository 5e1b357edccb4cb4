//! The forms of user data that cloud-init acts on. It ignores data of other forms and reports that only in a log: the machine comes up,
//! and nothing was done.

/// The first characters of data that cloud-init acts on, in letters of either case:
/// <https://docs.cloud-init.io/en/latest/explanation/format/index.html>.
const FORMS: &[&str] = &[
    "#!",
    "#cloud-config",
    "#cloud-boothook",
    "#include",
    "#part-handler",
    "#upstart-job",
    "## template: jinja",
];

/// The header of MIME multi-part data, and the number of bytes at the beginning in which cloud-init looks for it.
const MIME: (&str, usize) = ("mime-version:", 4096);

/// The reason why cloud-init would ignore the data; `None` if it acts on them. User data are secret, so the reason quotes nothing
/// of them.
pub(crate) fn idle(data: &str) -> Option<&'static str> {
    (!is_acted_on(data)).then_some(
        "cloud-init does nothing with user_data of this form: it wants a first line like `#cloud-config` or `#!/bin/sh`, or a MIME \
         message with the header `MIME-Version: 1.0`",
    )
}

/// True if cloud-init acts on the data. Empty data count as acted on: there is nothing to do.
fn is_acted_on(data: &str) -> bool {
    let data = data.trim_start().to_ascii_lowercase();
    let (header, within) = MIME;
    let is_mime = || {
        data.bytes().take(within).collect::<Vec<_>>().windows(header.len()).any(|it| it == header.as_bytes())
    };
    data.is_empty() || FORMS.iter().any(|form| data.starts_with(form)) || is_mime()
}

#[cfg(test)]
mod tests {
    use super::is_acted_on;

    #[test]
    fn what_cloud_init_acts_on_is_taken() {
        for data in [
            "#cloud-config\npackages: [nginx]\n",
            "#Cloud-Config-archive\n- content: x\n",
            "#!/bin/sh\n",
            "\n#cloud-config\n",
            "#include-once\nhttps://a/b\n",
            "## template: jinja\n#cloud-config\n",
            "Content-Type: multipart/mixed; boundary=a\nMIME-Version: 1.0\n",
            "",
        ] {
            assert!(is_acted_on(data), "{data:?}");
        }
    }

    #[test]
    fn what_it_would_ignore_is_not() {
        let late = format!("{}MIME-Version: 1.0", "x".repeat(5000));
        for data in [
            "hello",
            "packages: [nginx]\n",
            "# cloud-config\n",
            "Content-Type: multipart/mixed\n",
            "é",
            &late,
        ] {
            assert!(!is_acted_on(data), "{data:?}");
        }
    }
}
