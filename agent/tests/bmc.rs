//! Accounts on a BMC, made from inside and used from the network. The BMC is the lab's own; a test in its crate checks it with `ipmitool`.

mod inside;

use std::sync::Arc;

use basalt_agent::bmc::{Command, Interface, Refusal, account, found};
use basalt_api::agent::{AddressSource, BmcAccount, BmcSetup, bmc_purpose};
use basalt_api::sealing;
use basalt_bmc::{
    Accounts, BmcClient, BmcConfig, BmcServer, Credentials, Lan, PasswordPolicy, Privilege, ServerConfig,
    User,
};
use inside::{Inside, On};
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256;
use rustls::crypto::hpke::Hpke;

fn user(name: &str, password: &str) -> User {
    let Credentials { username: name, password, .. } = Credentials::new(name, password).unwrap();
    User { name, password, privilege: Privilege::Administrator }
}

/// A BMC with these users, and the connection to it from inside.
struct World {
    server: BmcServer,
    inside: Inside,
    private: Vec<u8>,
    wanted: BmcSetup,
    /// Accounts that were stored, the latest last.
    promised: Vec<BmcAccount>,
    _directory: tempfile::TempDir,
}

impl World {
    async fn with(accounts: Accounts) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bmc.sock");
        let admin = user("admin", "secret");
        let mut config = ServerConfig::new(admin.name, admin.password, [7; 16]);
        config.device.manufacturer = 10_876;
        config.accounts = accounts;
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let server =
            BmcServer::start_inside(address, listener, config, Arc::new(On::default())).await.unwrap();
        let inside = Inside::connect(&path);
        let (public, private) = DH_KEM_X25519_HKDF_SHA256_AES_256.generate_key_pair().unwrap();
        let wanted = BmcSetup { user: "basalt".to_owned(), driver: None, key: hex::encode(public.0) };
        Self {
            server,
            inside,
            private: private.secret_bytes().to_vec(),
            wanted,
            promised: Vec::new(),
            _directory: directory,
        }
    }

    fn set_up(&mut self) -> Result<BmcAccount, String> {
        let Self { inside, wanted, promised, .. } = self;
        let mut promise = |account: &BmcAccount| {
            promised.push(account.clone());
            Ok(())
        };
        let purpose = bmc_purpose("m1", 5);
        tokio::task::block_in_place(|| account::set_up(inside, wanted, &purpose, &mut promise))
    }

    fn password(&self, account: &BmcAccount) -> String {
        let sealed = hex::decode(&account.password).unwrap();
        let opened = sealing::open(&self.private, &bmc_purpose("m1", 5), &sealed).unwrap();
        String::from_utf8(opened).unwrap()
    }

    async fn may(&self, name: &str, password: &str) -> bool {
        let credentials = Credentials::new(name, password).unwrap();
        let client = BmcClient::new(BmcConfig::new(self.server.address(), credentials));
        client.power_status().await.is_ok()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_was_made_inside_is_good_outside_and_others_stay() {
    let mut world = World::with(Accounts::new(10, vec![user("admin", "secret")])).await;
    let account = world.set_up().unwrap();
    assert_eq!((account.user.as_str(), account.slot, account.channel), ("basalt", Some(3), Some(1)));
    let first = world.password(&account);
    assert!(world.may("basalt", &first).await && world.may("admin", "secret").await);

    let again = world.set_up().unwrap();
    assert_eq!(again.slot, Some(3), "it keeps its slot");
    let second = world.password(&again);
    assert!(world.may("basalt", &second).await && !world.may("basalt", &first).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bmc_says_what_it_is_and_where() {
    let lan = Lan {
        address: [10, 77, 0, 101].into(),
        dhcp: true,
        mac: [0x52, 0x54, 0, 0xf7, 0, 1],
        ..Lan::default()
    };
    let accounts = Accounts::new(10, vec![user("admin", "secret")]).with_lan(lan);
    let mut world = World::with(accounts).await;
    let found = tokio::task::block_in_place(|| found::read(&mut world.inside)).unwrap();
    assert_eq!((found.manufacturer.as_str(), found.ipmi_version.as_str()), ("Supermicro", "2.0"));
    assert_eq!((found.channel, found.address.as_deref()), (Some(1), Some("10.77.0.101")));
    assert_eq!(found.address_source, Some(AddressSource::Dhcp));
    assert_eq!(found.mac.as_deref(), Some("52:54:00:f7:00:01"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_without_a_free_slot_keeps_its_users_and_says_who_they_are() {
    let users = vec![user("admin", "secret"), user("monitor", "secret"), user("backup", "secret")];
    let mut world = World::with(Accounts::new(4, users)).await;
    let why = world.set_up().unwrap_err();
    assert!(why.contains("all 3 user slots") && why.contains("admin, monitor, backup"), "{why}");
    assert!(world.may("backup", "secret").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_for_passwords_are_met_by_one_shape_or_told() {
    let admin = || Accounts::new(10, vec![user("admin", "secret")]);
    for (min, max, mixed, length) in
        [(8, 20, false, 15), (16, 20, false, 20), (8, 16, true, 15), (17, 20, true, 20)]
    {
        let mut world = World::with(admin().with_policy(PasswordPolicy { min, max, mixed })).await;
        let account = world.set_up().unwrap();
        let password = world.password(&account);
        assert_eq!(password.len(), length);
        assert!(world.may("basalt", &password).await, "{min} to {max}, mixed {mixed}");
    }
    let mut world = World::with(admin().with_policy(PasswordPolicy { min: 30, max: 40, mixed: false })).await;
    let why = world.set_up().unwrap_err();
    assert!(why.contains("takes no password") && why.contains("invalid value (0xcc)"), "{why}");
    let name = Command { net_fn: 6, code: 0x46, name: "Get User Name" };
    let left = tokio::task::block_in_place(|| world.inside.ask(name, &[3])).unwrap();
    assert_eq!(left, [0; 16], "the slot is nobody's again");
}

/// A BMC that is too busy to name the user of slot 2.
struct Busy<'a>(&'a mut Inside);

impl Interface for Busy<'_> {
    fn ask(&mut self, command: Command, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        match (command.name, data) {
            ("Get User Name", [2]) => Err(Refusal::Code(command, 0xc0)),
            _ => self.0.ask(command, data),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_whose_user_the_bmc_does_not_name_is_nobodys_to_take() {
    let mut world = World::with(Accounts::new(10, vec![user("admin", "secret")])).await;
    let World { inside, wanted, .. } = &mut world;
    let why = tokio::task::block_in_place(|| {
        account::set_up(&mut Busy(inside), wanted, "purpose", &mut |_| Ok(()))
    })
    .unwrap_err();
    assert!(why.contains("Get User Name: it is busy"), "{why}");
    assert!(world.may("admin", "secret").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lan_interface_that_takes_no_sessions_is_turned_on() {
    let lan = Lan { enabled: false, ..Lan::default() };
    let mut world = World::with(Accounts::new(10, vec![user("admin", "secret")]).with_lan(lan)).await;
    assert!(!world.may("admin", "secret").await);
    let account = world.set_up().unwrap();
    assert!(world.may("basalt", &world.password(&account)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_written_down_before_the_bmc_has_it() {
    let policy = PasswordPolicy { min: 16, max: 20, mixed: false };
    let mut world = World::with(Accounts::new(10, vec![user("admin", "secret")]).with_policy(policy)).await;
    let made = world.set_up().unwrap();
    let lengths: Vec<usize> = world.promised.iter().map(|it| world.password(it).len()).collect();
    assert_eq!(lengths, [15, 20], "one that the BMC refused, and the one that it took");
    assert_eq!(world.promised.last(), Some(&made));

    let before = world.password(&made);
    let World { inside, wanted, .. } = &mut world;
    let mut refuse = |_: &BmcAccount| Err("no rack".to_owned());
    let why = tokio::task::block_in_place(|| account::set_up(inside, wanted, "purpose", &mut refuse));
    assert_eq!(why, Err("no rack".to_owned()));
    assert!(world.may("basalt", &before).await, "the BMC was told no password that is not written down");
}
