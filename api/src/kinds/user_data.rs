//! What cloud-init takes for user data. It ignores the rest, and says so in a log alone: the machine comes up, and nothing was done.

/// How data begin that it acts on, in letters of either case: <https://docs.cloud-init.io/en/latest/explanation/format/index.html>.
const FORMS: &[&str] = &[
    "#!",
    "#cloud-config",
    "#cloud-boothook",
    "#include",
    "#part-handler",
    "#upstart-job",
    "## template: jinja",
];

/// What makes several parts of data, and within how many bytes it is looked for.
const MIME: (&str, usize) = ("mime-version:", 4096);

/// Why nothing would act on the data, if it is so. They are a secret, so that nothing of them is said.
pub(crate) fn idle(data: &str) -> Option<&'static str> {
    (!is_acted_on(data)).then_some(
        "cloud-init does nothing with user_data of this form: it wants a first line like `#cloud-config` or `#!/bin/sh`, or a MIME \
         message with the header `MIME-Version: 1.0`",
    )
}

/// Whether cloud-init would do what they say; of nothing, nothing is to be done.
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
