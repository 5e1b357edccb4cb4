//! `basalt completion`: a script with which a shell completes commands, flags and kinds.

use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::output::show_exactly;
use crate::region::Failed;

/// Arguments of `basalt completion`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell: `source <(basalt completion bash)`, or the file that the shell reads at its start
    #[arg(value_enum)]
    shell: Known,
}

/// A shell that is known.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Known {
    /// GNU Bash, from version 4
    Bash,
    /// The Z shell
    Zsh,
    /// The friendly interactive shell
    Fish,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failed> {
    show_exactly(&script(args.shell));
    Ok(())
}

fn script(shell: Known) -> String {
    let shell = match shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    let (mut command, mut script) = (Cli::command(), Vec::new());
    clap_complete::generate(shell, &mut command, "basalt", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Fish {
        script.push_str(&fish_words(&command));
    }
    script
}

/// The words of arguments without a flag. clap's generator for fish omits them.
fn fish_words(command: &Command) -> String {
    let line = |subcommand: &Command| {
        let words = subcommand.get_positionals().flat_map(Arg::get_possible_values);
        let words: Vec<String> = words.map(|word| word.get_name().to_owned()).collect();
        let name = subcommand.get_name();
        let line = format!(
            "complete -c basalt -n \"__fish_seen_subcommand_from {name}\" -f -a \"{}\"\n",
            words.join(" ")
        );
        if words.is_empty() { String::new() } else { line }
    };
    command.get_subcommands().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_has_commands_flags_and_kinds() {
        for shell in [Known::Bash, Known::Zsh, Known::Fish] {
            let script = script(shell);
            for word in ["recommission", "dry-run", "ip_ranges", "custom-columns"] {
                assert!(script.contains(word), "{shell:?}: {word}");
            }
        }
    }

    /// Runs the line of README in Bash, with the words typed so far in `COMP_WORDS`.
    #[test]
    fn bash_completes_the_kind() {
        let typed =
            "COMP_WORDS=(basalt get mach); COMP_CWORD=2; _basalt basalt mach get; echo \"${COMPREPLY[@]}\"";
        let readme = include_str!("../../README.md");
        let line = readme.lines().find(|line| line.starts_with("source <(basalt completion bash)"));
        let script = script(Known::Bash);
        let stand_in = format!("basalt() {{\ncat <<'END OF SCRIPT'\n{script}\nEND OF SCRIPT\n}}");
        let text = format!("{stand_in}\n{}\n{typed}\n", line.expect("README has it"));
        let said = std::process::Command::new("bash").args(["-c", &text]).output().expect("bash is there");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert_eq!(said.trim(), "machines", "{said}");
    }
}
