//! Kernel options that settings, tags, images, machines and deployments declare. Boot loaders read them as part of a script.

use crate::validate::Rule;

/// Most bytes of the options of one object. A kernel takes 2,047 bytes of all options together.
const LONGEST: usize = 512;

/// Reports the errors of the options at `/kernel_options`.
pub(super) fn rules(options: Option<&str>, rule: &mut Rule<'_>) {
    let Some(options) = options else { return };
    let mut broken = |message: String, hint: &str| rule.broken("/kernel_options", message, hint);
    // iPXE would act on these before a kernel saw them.
    let is_script = |word: &&str| matches!(*word, "||" | "&&" | ";") || word.contains("${");
    if let Some(word) = options.split_ascii_whitespace().find(is_script) {
        broken(format!("{word:?} is for a boot loader, and no option of a kernel"), "leave it out");
    }
    if options.chars().any(char::is_control) {
        broken(
            format!("{options:?} has a control character"),
            "options on one line, with spaces between them",
        );
    }
    if options.len() > LONGEST {
        broken(format!("they are {} bytes long", options.len()), "at most 512 bytes");
    }
}
