//! The account by a Redfish host interface. The firmware's table is invented, one end of a cable is the machine's device, and a test BMC is
//! at the other end.

mod inside;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use basalt_agent::bmc::{self, redfish};
use basalt_agent::root::Root;
use basalt_api::agent::{Bmc, BmcAccount, BmcDriver, BmcSetup, bmc_purpose};
use basalt_api::sealing;
use basalt_bmc::{
    Accounts, BmcServer, Bootstrap, Credentials, Lockout, PasswordPolicy, Privilege, ServerConfig, User,
};
use basalt_played_bmc::{Config, RedfishBmc};
use basalt_redfish::{Account, Boot, Config as SessionConfig, Device, Failure, Power, Reset, Session};
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256;
use rustls::crypto::hpke::Hpke;

use inside::{Inside, On};

const INSIDE: &str = "BASALT_TEST_INSIDE_NAMESPACE";
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const SERVICE: [u8; 4] = [169, 254, 7, 1];
const PURPOSE: (&str, u64) = ("m1", 5);

/// Runs the test again in a namespace. True if it already runs there.
fn is_inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let inside = Command::new("unshare")
        .args(["-r", "-n"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--show-output"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inside.stdout) + String::from_utf8_lossy(&inside.stderr);
    assert!(inside.status.success() && said.contains("1 passed"), "in a namespace of its own: {said}");
    false
}

fn run(command: &str) {
    let mut words = command.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{command}: {status}");
}

/// A structure of type 42: a USB device with this MAC address, a static address, and the service at its other end.
fn table(port: u16, bootstraps: u8) -> Vec<u8> {
    let address = |octets: [u8; 4]| [&octets[..], &[0; 12]].concat();
    let mask = address([255, 255, 255, 0]);
    let [low, high] = port.to_le_bytes();
    let mut record = vec![0x11; 16];
    record.extend([&[1, 1][..], &address([169, 254, 7, 2]), &mask].concat());
    record.extend([&[1, 1][..], &address(SERVICE), &mask, &[low, high, 0, 0, 0, 0, 3], b"bmc"].concat());
    let mut device = vec![4, 0x11, 0x6b, 4, 0xb0, 0xff, 0];
    device.extend(MAC);
    device.extend([bootstraps, 0, 0xff, 0xff]);
    let length = |of: &[u8]| u8::try_from(of.len()).unwrap();
    let mut bytes = vec![42, 0, 0x2a, 0, 0x40, length(&device)];
    bytes.extend(&device);
    bytes.extend([1, 4, length(&record)]);
    bytes.extend(record);
    bytes[1] = length(&bytes);
    bytes.extend([0, 0]);
    bytes
}

/// A machine with a Redfish host interface, and its BMC.
struct World {
    root: Root,
    directory: tempfile::TempDir,
    redfish: RedfishBmc,
    _ipmi: BmcServer,
    inside: Inside,
    private: Vec<u8>,
    wanted: BmcSetup,
    promised: Vec<BmcAccount>,
    found: Option<Bmc>,
}

impl World {
    async fn with(config: Config) -> Self {
        run("ip link set lo up");
        run("ip link add usb0 type veth peer name bmc0");
        let mac = MAC.map(|octet| format!("{octet:02x}")).join(":");
        run(&format!("ip link set usb0 address {mac}"));
        run("ip addr add 169.254.7.1/24 dev bmc0");
        run("ip link set bmc0 up");
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::new("admin", "secret").unwrap();
        let Credentials { username: name, password, .. } = credentials;
        let admin =
            User { name: name.clone(), password: password.clone(), privilege: Privilege::Administrator };
        let mut server = ServerConfig::new(name, password, [7; 16]);
        server.accounts = Accounts::new(10, vec![admin]).with_bootstrap(config.bootstrap.clone());
        let socket = directory.path().join("bmc.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let lan = "127.0.0.1:0".parse().unwrap();
        let ipmi = BmcServer::start_inside(lan, listener, server, Arc::new(On::default())).await.unwrap();
        let config = Config { inside: Some(IpAddr::from(SERVICE)), ..config };
        let at = [SocketAddr::from((SERVICE, 0)), SocketAddr::from(([127, 0, 0, 1], 0))];
        let redfish = RedfishBmc::start(&at, config, Arc::new(On::default())).await.unwrap();
        let (public, private) = DH_KEM_X25519_HKDF_SHA256_AES_256.generate_key_pair().unwrap();
        let wanted = BmcSetup { user: "basalt".to_owned(), driver: None, key: hex::encode(public.0) };
        let world = Self {
            root: Root::at(directory.path()),
            inside: Inside::connect(&socket),
            redfish,
            _ipmi: ipmi,
            private: private.secret_bytes().to_vec(),
            wanted,
            promised: Vec::new(),
            found: None,
            directory,
        };
        world.write("sys/firmware/dmi/tables/DMI", &table(world.redfish.addresses()[0].port(), 1));
        // /sys shows the namespace outside, so the tree has its own files.
        for (file, text) in [("address", mac.as_str()), ("carrier", "1"), ("device/uevent", "")] {
            world.write(&format!("sys/class/net/usb0/{file}"), text.as_bytes());
        }
        world
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, file: &str, bytes: &[u8]) {
        let path = self.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// The same call as in a task of the agent.
    fn set_up(&mut self) -> Result<BmcAccount, String> {
        let Self { root, inside, wanted, promised, found, .. } = self;
        let mut promise = |account: &BmcAccount| {
            promised.push(account.clone());
            Ok(())
        };
        tokio::task::block_in_place(|| {
            let mut service = redfish::find(root, Some("eth0"));
            let purpose = bmc_purpose(PURPOSE.0, PURPOSE.1);
            bmc::set_up(Some(inside), service.as_mut(), wanted, &purpose, "", found, &mut promise)
        })
    }

    /// The rack's client at the BMC's other address, with the account.
    async fn rack(&self, password: &str) -> Session {
        let tls = basalt_agent::tls::first_seen().unwrap();
        let account = Account::new("basalt", password);
        let port = self.redfish.addresses()[1].port();
        Session::open(SessionConfig::new("127.0.0.1", port, account, tls)).await.unwrap()
    }

    fn password(&self, account: &BmcAccount) -> String {
        let sealed = hex::decode(&account.password).unwrap();
        let purpose = bmc_purpose(PURPOSE.0, PURPOSE.1);
        String::from_utf8(sealing::open(&self.private, &purpose, &sealed).unwrap()).unwrap()
    }
}

fn admin() -> Config {
    let lan = Some([10, 77, 0, 101].into());
    Config { lan, ..Config::new("admin", "secret") }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_made_with_a_bootstrap_account() {
    if !is_inside("an_account_is_made_with_a_bootstrap_account") {
        return;
    }
    let bootstrap = Bootstrap::new(true);
    let mut world =
        World::with(Config { bootstrap: bootstrap.clone(), wants: vec!["AccountTypes"], ..admin() }).await;
    let account = world.set_up().unwrap();
    assert_eq!((account.user.as_str(), account.driver, account.slot), ("basalt", BmcDriver::Redfish, None));
    assert_eq!(world.promised, std::slice::from_ref(&account), "it was written down first");
    let seen = world.redfish.seen();
    assert_eq!(seen.accounts["basalt"], "Operator");
    assert_eq!(seen.failures, 0);
    let mut rack = world.rack(&world.password(&account)).await;
    assert_eq!(rack.power().await, Ok(Power::On));
    rack.reset(Reset::Cycle).await.unwrap();
    rack.boot_once(Boot { device: Device::Network, uefi: false }).await.unwrap();
    assert!(!bootstrap.is_enabled(), "no more bootstrap accounts until the BMC is reset");
    let found = world.found.clone().unwrap();
    assert_eq!(
        (found.address.as_deref(), found.mac.as_deref()),
        (Some("10.77.0.101"), Some("52:54:00:f7:00:01"))
    );
    assert_eq!((found.manufacturer.as_str(), found.firmware.as_str()), ("Basalt", "2.14.0"));

    bootstrap.enable(true);
    let again = world.set_up().unwrap();
    let mut rack = world.rack(&world.password(&again)).await;
    assert_eq!(rack.power().await, Ok(Power::On));
    let mut rack = world.rack(&world.password(&account)).await;
    assert!(matches!(rack.power().await.unwrap_err().failure, Failure::WrongPassword { .. }));
    assert_eq!(world.redfish.seen().accounts.len(), 2, "the user keeps its account");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_with_fixed_slots_has_the_account_in_an_empty_one() {
    if !is_inside("a_bmc_with_fixed_slots_has_the_account_in_an_empty_one") {
        return;
    }
    let mut world = World::with(Config { slots: Some(4), ..admin() }).await;
    world.set_up().unwrap();
    let seen = world.redfish.seen();
    assert_eq!(seen.accounts.keys().collect::<Vec<_>>(), ["admin", "basalt"]);
    let patched =
        seen.requests.iter().filter(|(method, ..)| method == "PATCH").map(|(_, path, _)| path.as_str());
    assert!(patched.into_iter().any(|path| path.ends_with("/Accounts/3")), "{:?}", seen.requests);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_makes_no_account_says_why_and_ipmi_is_asked() {
    if !is_inside("a_service_that_makes_no_account_says_why_and_ipmi_is_asked") {
        return;
    }
    let mut world = World::with(Config { slots: Some(2), ..admin() }).await;
    assert_eq!(world.set_up().unwrap().driver, BmcDriver::Ipmi);
    world.wanted.driver = Some(BmcDriver::Redfish);
    let why = world.set_up().unwrap_err();
    assert!(why.contains("all 1 accounts of the BMC are taken (admin)"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_for_passwords_are_met_by_one_shape_or_told() {
    if !is_inside("rules_for_passwords_are_met_by_one_shape_or_told") {
        return;
    }
    let policy = PasswordPolicy { min: 16, max: 20, mixed: true };
    let mut world = World::with(Config { policy, ..admin() }).await;
    world.wanted.driver = Some(BmcDriver::Redfish);
    let account = world.set_up().unwrap();
    assert_eq!(world.password(&account).len(), 20);
    let lengths: Vec<usize> = world.promised.iter().map(|it| world.password(it).len()).collect();
    assert_eq!(lengths, [20, 20], "a length that the BMC says it refuses is not tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_takes_no_password_of_ours_says_what_it_wants() {
    if !is_inside("a_bmc_that_takes_no_password_of_ours_says_what_it_wants") {
        return;
    }
    let policy = PasswordPolicy { min: 30, max: 40, mixed: false };
    let mut world = World::with(Config { policy, ..admin() }).await;
    world.wanted.driver = Some(BmcDriver::Redfish);
    let why = world.set_up().unwrap_err();
    assert!(
        why.contains("it says that it wants 30 to 40 characters") && why.contains("relax its rules"),
        "{why}"
    );
    assert!(world.promised.is_empty() && !world.redfish.seen().accounts.contains_key("basalt"));
}

#[test]
fn a_machine_that_shows_no_bmc_says_what_to_turn_on() {
    let wanted = BmcSetup { user: "basalt".to_owned(), driver: None, key: String::new() };
    let (mut found, kernel) = (None, None::<&mut Inside>);
    let why = bmc::set_up(kernel, None, &wanted, "purpose", "", &mut found, &mut |_| Ok(())).unwrap_err();
    assert!(
        why.contains("no /dev/ipmi0") && why.contains("turn on the BMC's interface to the host"),
        "{why}"
    );
    assert_eq!(found, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_the_bmc_cuts_off_leaves_no_account_and_no_lock() {
    if !is_inside("a_password_that_the_bmc_cuts_off_leaves_no_account_and_no_lock") {
        return;
    }
    let lockout = Some(Lockout { tries: 3, lasts: Duration::from_secs(3600) });
    let mut world = World::with(Config { keeps: 8, lockout, ..admin() }).await;
    world.wanted.driver = Some(BmcDriver::Redfish);
    let why = world.set_up().unwrap_err();
    assert!(why.contains("took the account of \"basalt\" and refuses it (401"), "{why}");
    let seen = world.redfish.seen();
    assert_eq!((seen.failures, seen.accounts.contains_key("basalt")), (2, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn bootstrapping_that_is_off_is_told() {
    if !is_inside("bootstrapping_that_is_off_is_told") {
        return;
    }
    let mut world = World::with(Config { bootstrap: Bootstrap::new(false), ..admin() }).await;
    world.wanted.driver = Some(BmcDriver::Redfish);
    let why = world.set_up().unwrap_err();
    assert!(why.contains("credential bootstrapping is off (0x80)") && why.contains("reset the BMC"), "{why}");
    world.write("sys/firmware/dmi/tables/DMI", &table(world.redfish.addresses()[0].port(), 0));
    let why = world.set_up().unwrap_err();
    assert!(why.contains("gives no bootstrap accounts"), "{why}");
    world.write("sys/firmware/dmi/tables/DMI", &[]);
    let why = world.set_up().unwrap_err();
    assert!(why.contains("no Redfish host interface (SMBIOS type 42)"), "{why}");
}
