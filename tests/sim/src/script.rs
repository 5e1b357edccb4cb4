//! The part of iPXE's script language that a boot script may use.
//!
//! It is an interpreter: a script that real iPXE would misread has to fail here too. The caller ([`Host`]) implements
//! the commands that use the network; all others are implemented here.
//!
//! Syntax: one command a line, `#` comments, `:label`, `${setting}`, and `&&`, `||` from left to right.

use std::collections::BTreeMap;

/// The end of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A kernel was started.
    Boot {
        /// Kernel parameters, without the kernel's own URL.
        cmdline: String,
    },
    /// iPXE itself starts the first disk.
    SanBoot,
    /// iPXE returns to the firmware with this status. A status other than 0 means "try the next device".
    Exit(i32),
    /// The machine is switched off.
    PowerOff,
    /// The machine is reset.
    Reboot,
    /// Another script replaces this one.
    Chain(String),
}

/// Commands that need a network or time. They answer true for success.
pub trait Host {
    /// Loads the kernel.
    fn kernel(&mut self, url: &str) -> bool;
    /// Loads an initial RAM disk.
    fn initrd(&mut self, url: &str) -> bool;
    /// Configures the interface by DHCP.
    fn dhcp(&mut self) -> bool;
    /// Waits this many seconds.
    fn sleep(&mut self, seconds: u64);
}

/// Reasons why a script cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// It has no `#!ipxe` line.
    #[error("the script does not begin with #!ipxe, so iPXE would not run it")]
    NoMagic,
    /// A command that this interpreter does not know.
    #[error("line {line}: {command:?} is no command that a boot script should use")]
    UnknownCommand {
        /// Line number, counted from 1.
        line: usize,
        /// The command's word.
        command: String,
    },
    /// A jump to an unknown label.
    #[error("line {line}: there is no label {label:?}")]
    NoLabel {
        /// Line number, counted from 1.
        line: usize,
        /// Name of the label.
        label: String,
    },
    /// A command failed and nothing caught it, or the script ended without booting.
    #[error("line {line}: the script ends in iPXE's shell: {command:?} failed")]
    Fell {
        /// Line number, counted from 1.
        line: usize,
        /// The command that failed.
        command: String,
    },
    /// The script runs for ever.
    #[error("the script did not end within {0} commands")]
    Endless(usize),
}

/// Limit of commands, above the number in any useful script.
const MAX_COMMANDS: usize = 1000;

/// Runs a script. `settings` are iPXE's, like `platform` (`pcbios`, `efi`).
///
/// # Errors
/// A script that would leave a real machine in iPXE's shell.
pub fn run(
    text: &str,
    settings: &BTreeMap<&str, String>,
    host: &mut dyn Host,
) -> Result<Ending, ScriptError> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    if lines.first() != Some(&"#!ipxe") {
        return Err(ScriptError::NoMagic);
    }
    let mut state = State { cmdline: None };
    let mut at = 0;
    for _ in 0..MAX_COMMANDS {
        let Some(line) = lines.get(at) else {
            return Err(ScriptError::Fell { line: at, command: "end of script".into() });
        };
        at += 1;
        if line.is_empty() || line.starts_with('#') || line.starts_with(':') {
            continue;
        }
        match chain(&expand(line, settings), at, &mut state, host)? {
            Flow::Next => {}
            Flow::End(ending) => return Ok(ending),
            Flow::Goto(label) => {
                let found =
                    lines.iter().position(|l| l.strip_prefix(':').map(str::trim) == Some(label.as_str()));
                at = found.ok_or(ScriptError::NoLabel { line: at, label })? + 1;
            }
        }
    }
    Err(ScriptError::Endless(MAX_COMMANDS))
}

struct State {
    cmdline: Option<String>,
}

enum Flow {
    Next,
    Goto(String),
    End(Ending),
}

enum Done {
    Status(bool),
    Flow(Flow),
}

/// Runs one line: commands joined by `&&` and `||`, which have the same precedence.
fn chain(line: &str, number: usize, state: &mut State, host: &mut dyn Host) -> Result<Flow, ScriptError> {
    let mut good = true;
    let mut run_next = true;
    let mut command = Vec::new();
    let mut last = String::new();
    for word in line.split_whitespace().chain(["&&"]) {
        if word != "&&" && word != "||" {
            command.push(word);
            continue;
        }
        if run_next && !command.is_empty() {
            last = command.join(" ");
            match one(&command, number, state, host)? {
                Done::Status(status) => good = status,
                Done::Flow(flow) => return Ok(flow),
            }
        }
        command.clear();
        run_next = if word == "&&" { good } else { !good };
    }
    if good { Ok(Flow::Next) } else { Err(ScriptError::Fell { line: number, command: last }) }
}

fn one(words: &[&str], line: usize, state: &mut State, host: &mut dyn Host) -> Result<Done, ScriptError> {
    let (command, arguments) = words.split_first().unwrap_or((&"", &[]));
    let plain: Vec<&str> = arguments.iter().copied().filter(|a| !a.starts_with("--")).collect();
    let end = |ending| Ok(Done::Flow(Flow::End(ending)));
    let status = |good| Ok(Done::Status(good));
    match *command {
        "echo" | "imgfree" | "set" | "isset" => status(true),
        "iseq" => status(plain.first() == plain.get(1)),
        "goto" => Ok(Done::Flow(Flow::Goto(plain.first().copied().unwrap_or_default().to_owned()))),
        "dhcp" | "ifconf" => status(host.dhcp()),
        "sleep" => {
            host.sleep(plain.first().and_then(|s| s.parse().ok()).unwrap_or(1));
            status(true)
        }
        "kernel" => {
            let loaded = plain.first().is_some_and(|url| host.kernel(url));
            if loaded {
                state.cmdline = Some(plain.get(1..).unwrap_or_default().join(" "));
            }
            status(loaded)
        }
        // The URL is last. Options and their values are before it.
        "initrd" => status(plain.last().is_some_and(|url| host.initrd(url))),
        "boot" => match state.cmdline.take() {
            Some(cmdline) => end(Ending::Boot { cmdline }),
            None => status(false),
        },
        "chain" => end(Ending::Chain(plain.first().copied().unwrap_or_default().to_owned())),
        "sanboot" => end(Ending::SanBoot),
        "exit" => end(Ending::Exit(plain.first().and_then(|code| code.parse().ok()).unwrap_or(0))),
        "poweroff" => end(Ending::PowerOff),
        "reboot" => end(Ending::Reboot),
        other => Err(ScriptError::UnknownCommand { line, command: other.to_owned() }),
    }
}

/// Replaces `${name}`; an unknown setting is empty, as in iPXE.
fn expand(line: &str, settings: &BTreeMap<&str, String>) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let (name, tail) = after.split_once('}').unwrap_or((after, ""));
        out.push_str(settings.get(name).map_or("", String::as_str));
        rest = tail;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Net {
        fetched: Vec<String>,
        broken: bool,
    }

    impl Host for Net {
        fn kernel(&mut self, url: &str) -> bool {
            self.fetched.push(url.to_owned());
            !self.broken
        }
        fn initrd(&mut self, url: &str) -> bool {
            self.kernel(url)
        }
        fn dhcp(&mut self) -> bool {
            true
        }
        fn sleep(&mut self, _: u64) {}
    }

    fn on(platform: &str, script: &str, net: &mut Net) -> Result<Ending, ScriptError> {
        run(script, &BTreeMap::from([("platform", platform.to_owned())]), net)
    }

    const LOCAL: &str = "#!ipxe\niseq ${platform} efi && goto efi || goto bios\n:efi\nexit 1\n:bios\nsanboot --drive 0x80 || exit 1\n";

    #[test]
    fn a_disk_is_booted_by_ipxe_on_bios_and_by_the_firmware_on_uefi() {
        assert_eq!(on("pcbios", LOCAL, &mut Net::default()), Ok(Ending::SanBoot));
        assert_eq!(on("efi", LOCAL, &mut Net::default()), Ok(Ending::Exit(1)));
    }

    #[test]
    fn a_kernel_gets_its_parameters_and_the_initrd_its_url() {
        let mut net = Net::default();
        let script = "#!ipxe\nkernel http://r/k initrd=i a=b || goto again\ninitrd --name i http://r/i || goto again\nboot\n:again\nreboot\n";
        assert_eq!(on("efi", script, &mut net), Ok(Ending::Boot { cmdline: "initrd=i a=b".into() }));
        assert_eq!(net.fetched, ["http://r/k", "http://r/i"]);
    }

    #[test]
    fn a_failed_download_takes_the_other_branch() {
        let mut net = Net { broken: true, ..Net::default() };
        let script = "#!ipxe\nkernel http://r/k || goto again\nboot\n:again\nsleep 1\nchain --replace http://r/s || reboot\n";
        assert_eq!(on("efi", script, &mut net), Ok(Ending::Chain("http://r/s".into())));
    }

    #[test]
    fn what_would_end_in_the_shell_is_an_error() {
        let mut net = Net { broken: true, ..Net::default() };
        assert!(matches!(
            on("efi", "#!ipxe\nkernel http://r/k\nboot\n", &mut net),
            Err(ScriptError::Fell { line: 2, .. })
        ));
        assert!(matches!(on("efi", "#!ipxe\ngoto nowhere\n", &mut net), Err(ScriptError::NoLabel { .. })));
        assert!(matches!(on("efi", "#!ipxe\nshell\n", &mut net), Err(ScriptError::UnknownCommand { .. })));
        assert_eq!(on("efi", "#!ipxe\n:a\ngoto a\n", &mut net), Err(ScriptError::Endless(MAX_COMMANDS)));
        assert_eq!(on("efi", "boot\n", &mut net), Err(ScriptError::NoMagic));
    }
}
