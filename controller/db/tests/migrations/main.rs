//! Migrations only add. docs/decisions/041-migrations.md gives the reason, and `rules` checks it.

mod rules;
mod sql;

use rules::lint;
use sha2::{Digest, Sha256};
use std::path::Path;

/// Migrations that databases in use have run, and the SHA-256 of their text. They never change.
const FROZEN: &[(&str, &str)] = &[
    ("0001_store.sql", "b5fd796f36288f25e530424e20ad6610a56a58f4bb20274f94403b424827765c"),
    ("0002_driver.sql", "ff37b41308e21e0b1cd55aace86ce2ac4f5517b8de19c7206c01a801d52a4b30"),
    ("0003_kinds.sql", "bb6554612ae3ed6de4ce6733457c0c1173c3e435a63bfab575b6884545c42a32"),
    ("0004_ipam.sql", "1a9712b975c32d0b86625a49331891a23ebc2f6e4c9b18ddc03252314ff1a239"),
    ("0005_access.sql", "cd17c12dc3ba14c3193d4f3ee0a3447cc83166a28744b9da51ec0b621faaa837"),
    ("0006_watch.sql", "00328909137eb35e5f80ea1862bbb7b061dae6c5e610ba5768a9e41ebaac01e2"),
    ("0007_pools.sql", "0cb34e09fd70abbb98726c55673fefa43255afefb7ec1edbe63a771fcd37f5e0"),
    ("0008_tags.sql", "761dc7f8bf356d04e2385d8b64dd9e5f25d3ff3226c8cdbadf12846beabf78d8"),
    ("0010_webhooks.sql", "05a79d8e59bc7c5e2ec06291237b2ff5db7a61cfd769c1c9e4d5b4a4ef45f0d3"),
    ("0011_dhcp_blocks.sql", "a4b4e4997bdc77863b10ac1d96289dac73bc0904aa98d76f0eae5b825828aeb5"),
    ("0012_layers.sql", "35ce5249603f1d55fc2a4c27c276ba2398420d2d182609bf67c9434846a8dde1"),
    ("0013_engine.sql", "2e593576578ba33313927bdfb0929c48ccdcb70efea96d3b99aa03fd2393d28a"),
    ("0014_bmc.sql", "b0419af7669e82990c9ad7c9878f974e1fd4871e0930c8b7194d5c4f008cd56e"),
    ("0015_device_address.sql", "d2d5469d09a07bca124ac3e4b857cb9396ba90f0b4e17c1e7d955e7e93fc48a5"),
    ("0016_operations.sql", "7050fe560672b6968cb9442066a61d5e94a8c8bb38a1413da52cd3620d6a77a6"),
    ("0017_openid.sql", "f551f1b2465af21f0353932e02f5ab46186eea8513b978b7d7cbb13a4d36280c"),
    ("0018_boot_trace.sql", "6798f115f8e63f412c50a52216364b4923dea90443518ebe807ce11970f618e1"),
    ("0019_ipv6_leases.sql", "362177b63766b9f2fa2f1debcca5be1ff65d9158267aec5f370f53ac1465df79"),
    ("0020_lease.sql", "357028d4be26f66e1f9046305d809af9a0bac026abeff091a94b4a42dbc782eb"),
    ("0021_scripts.sql", "4697a13c7007100c3dafdac31c785a23e40fe927c88fb0d84cde2c79e51a0df0"),
    ("0022_rescue.sql", "bcec0db38c7a6a1a6baf9748fa78832901a9f190f1630e345dfced14447c46e8"),
    ("0023_claims_told.sql", "9b760e403a2263edbe677ec8098fcef2260f1fc19560a9c23b524baca880966e"),
    ("0024_lease6.sql", "591f68c6528278e71bdd20459582ab807faadf0d010a90a9cf9de5c3a3082b41"),
    ("0025_duid.sql", "9b07ba6c81509614845e722bd9a22f25a4f25b8c9c6217c7b74d6a4d4c234a0d"),
    ("0026_redfish.sql", "d4fce4e86e4de9b791e9508fb5598a91817cd842d37961fb4ece6cd61293e2fe"),
    ("0027_runs.sql", "8147b16a3d573faff3f87ff77826d900a9f88c36a070048274ad629de655e79a"),
];

/// The number of migrations that are older than the rules.
const BEFORE_THE_RULES: usize = 6;

/// Number, file name and text of every migration, in their order.
fn migrations() -> Vec<(u32, String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
    let mut all: Vec<_> = std::fs::read_dir(&dir)
        .expect("the folder of migrations")
        .map(|entry| {
            let path = entry.expect("its entries").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
            let number = name.split_once('_').filter(|(number, _)| number.len() == 4);
            let number = number.and_then(|(number, _)| number.parse().ok());
            let number = number.unwrap_or_else(|| panic!("{name} is not called NNNN_WORD.sql"));
            (number, name, std::fs::read_to_string(&path).expect("its text"))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn what_databases_have_run_never_changes() {
    let all = migrations();
    for (name, sha256) in FROZEN {
        let found = all.iter().find(|(_, file, _)| file == name);
        let (_, _, text) = found.unwrap_or_else(|| panic!("migrations/{name} is gone: put it back"));
        let now = hex::encode(Sha256::digest(text));
        assert_eq!(
            now, *sha256,
            "migrations/{name} was edited: put it back, and write a new migration instead"
        );
    }
}

#[test]
fn newer_migrations_keep_the_rules() {
    let all = migrations();
    let numbers: Vec<u32> = all.iter().map(|(number, ..)| *number).collect();
    let mut wrong = Vec::new();
    for (at, (_, name, text)) in all.iter().enumerate().skip(BEFORE_THE_RULES) {
        let earlier = numbers.get(..at).unwrap_or_default();
        assert!(earlier.iter().all(|e| e < &numbers[at]), "migrations/{name}: this number is taken");
        wrong.extend(lint(text, earlier).into_iter().map(|why| format!("migrations/{name} {why}")));
    }
    assert!(wrong.is_empty(), "see docs/decisions/041-migrations.md\n{}", wrong.join("\n"));
}

/// A script, and a part of its expected error; empty if the script is correct.
const EXAMPLES: &[(&str, &str)] = &[
    // Additions are allowed.
    (
        "create table a (b int not null); create index on a (b); insert into a select 1; update a set b = 2;",
        "",
    ),
    (
        "create table a (b int); alter table a add constraint c check (b > 0), alter column b set not null;",
        "",
    ),
    ("alter table address add column class text not null default 'x' check (class in ('x', 'y'));", ""),
    ("alter table address add column note text, add check (note <> '');", ""),
    ("alter table address alter column mac drop not null;", ""),
    ("create index address_x on address (mac);", ""),
    ("create function f() returns int language sql as $$ update object set name = '' returning 1 $$;", ""),
    ("create or replace function f() returns trigger language plpgsql as $$ begin drop table x; end $$;", ""),
    ("update address set class = 'x' where class = 'y';", ""),
    ("-- no-transaction\ncreate index concurrently change_log_x on change_log (kind);", ""),
    ("alter table audit add constraint a check (kind <> '') not valid;", ""),
    ("create table drop (rename int); comment on table drop is 'lock table x; drop table y';", ""),
    (
        "create trigger t before insert on object for each row execute function f(); drop trigger t on object;",
        "",
    ),
    // Statements that drop, block or rewrite a table are refused.
    ("drop table address;", "line 1: DROP TABLE"),
    ("select 1;\n\n-- why\ndrop function\n  object_pool;", "line 4: DROP FUNCTION"),
    ("alter table address drop column mac;", "DROP COLUMN"),
    ("alter table address drop constraint address_pkey, add primary key (mac);", "DROP CONSTRAINT"),
    ("alter table address alter column class drop default;", "DROP DEFAULT"),
    ("alter table address rename column mac to m;", "RENAME"),
    ("ALTER TABLE address RENAME TO a;", "RENAME"),
    ("alter type purpose rename value 'a' to 'b';", "RENAME"),
    ("alter table address alter column mac type text using mac::text;", "ALTER TYPE"),
    ("alter table address alter mac set data type text;", "ALTER TYPE"),
    ("alter table address add column note text not null;", "ADD COLUMN"),
    (
        "alter table address add a int default 1, add column note text not null check (note in ('a','b'));",
        "ADD COLUMN",
    ),
    ("alter table address alter column note set not null;", "SET NOT NULL"),
    ("alter table audit add constraint a check (kind <> '');", "NOT VALID"),
    ("create unique index x on only change_log (seq);", "CONCURRENTLY"),
    ("create index concurrently x on change_log (seq);", "-- no-transaction"),
    (
        "-- no-transaction\ncreate index concurrently x on change_log (seq); select 1;",
        "a migration of its own",
    ),
    ("lock table object in share mode;", "LOCK"),
    ("truncate session;", "TRUNCATE"),
    ("update address set class = 'x';", "UPDATE of a whole table"),
    ("delete from session;", "DELETE of a whole table"),
    ("update audit set kind = 'x' where kind = 'y';", "in pieces"),
    (
        "do $$ declare r record; begin for r in select 1 loop drop table address; end loop; end $$;",
        "DROP TABLE",
    ),
    ("select 'open", "is not closed"),
    // Unused things may be dropped, if the migration says since when they are unused.
    ("-- contract: moved to span, unused since 0004\nalter table address drop column mac;", ""),
    (
        "-- contract: moved to span, unused since 0009\nalter table address drop column mac;",
        "0009 is not the number",
    ),
    ("-- contract: moved to span\nalter table address drop column mac;", "write `-- contract: REASON"),
    ("-- contract: , unused since 0004\nalter table address drop column mac;", "write `-- contract: REASON"),
    ("-- contract: x, unused since 0004\n\nselect 1; drop table address;", "DROP TABLE"),
];

#[test]
fn the_rules_refuse_what_they_say_and_nothing_else() {
    for (script, wanted) in EXAMPLES {
        let said = lint(script, &[1, 2, 3, 4]).join("\n");
        assert_eq!(said.is_empty(), wanted.is_empty(), "{script}\n{said}");
        assert!(said.contains(wanted), "{script}\n{said}");
    }
}
