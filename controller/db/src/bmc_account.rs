//! Accounts that machines have created on their BMCs. The password is sealed in this table, and is in no spec.

use crate::object::{signed, timestamp, unsigned};
use crate::seal::Place;
use crate::{Store, StoreError};
use basalt_api::agent::BmcDriver;
use basalt_api::kinds::BmcTls;
use basalt_api::values::{Attempt, Host, Mac, MachineId, Sha256, Timestamp, Uid};
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use zeroize::Zeroizing;

/// The place under which the password of a machine's BMC is sealed.
pub(crate) fn place(machine: Uid) -> Place<'static> {
    Place { object: machine, pointer: "bmc_account" }
}

/// The protocols of accounts, as they are stored.
const DRIVERS: [(BmcDriver, &str); 2] = [(BmcDriver::Ipmi, "ipmi"), (BmcDriver::Redfish, "redfish")];

/// The evidence that an account works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BmcAccountState {
    /// The machine has created it on its BMC.
    Made,
    /// A rack has logged in with it.
    Checked,
    /// Racks cannot log in with it.
    Refused,
}

impl BmcAccountState {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Made, "made"), (Self::Checked, "checked"), (Self::Refused, "refused")];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("made", |(_, word)| word)
    }
}

/// The destination of an account's password. Racks send the password nowhere else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BmcDestination {
    /// The address of the BMC when the account was created: `bmc.address`, or the address that was found from inside.
    pub address: Option<Host>,
    /// The MAC address of the BMC, if `address` was found from inside, and DHCP gave it.
    pub mac: Option<Mac>,
    /// `bmc.port` when the account was asked for.
    pub port: Option<u16>,
    /// `bmc.tls` when the account was asked for.
    pub tls: Option<BmcTls>,
}

/// An account on a machine's BMC.
#[derive(Clone, Debug, PartialEq)]
pub struct BmcAccount {
    /// The attempt that created the account.
    pub attempt: Attempt,
    /// The number of the account among those of the machine, from 1.
    pub revision: u32,
    /// The user's name.
    pub username: String,
    /// The protocol by which it may log in.
    pub driver: BmcDriver,
    /// The machine's `bmc.rotate` when the account was created.
    pub rotate: u32,
    /// The evidence that it works.
    pub state: BmcAccountState,
    /// The destination of its password.
    pub destination: BmcDestination,
    /// The certificate that the BMC showed when a rack used the account.
    pub certificate: Option<Sha256>,
    /// When it was stored.
    pub made_at: Timestamp,
}

/// A new account.
#[derive(Debug)]
pub struct NewBmcAccount<'a> {
    /// The attempt that created the account.
    pub attempt: Attempt,
    /// The user's name.
    pub username: &'a str,
    /// The protocol by which it may log in.
    pub driver: BmcDriver,
    /// The password, in the clear.
    pub password: &'a [u8],
    /// `bmc.rotate` of the machine.
    pub rotate: u32,
    /// The destination of its password.
    pub destination: &'a BmcDestination,
}

impl Store {
    /// The account on a machine's BMC.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn bmc_account(&self, machine: MachineId) -> Result<Option<BmcAccount>, StoreError> {
        let row = sqlx::query!(
            r#"select attempt, revision, username, rotate, state, driver, certificate,
                 destination as "destination: Json<BmcDestination>",
                 (extract(epoch from made_at) * 1000000)::bigint as "made_us!"
               from bmc_account where machine = $1"#,
            machine.get()
        );
        let Some(row) = row.fetch_optional(self.pool()).await? else { return Ok(None) };
        let state = BmcAccountState::ALL.iter().find(|(_, word)| *word == row.state);
        let corrupt = || StoreError::Corrupt(format!("the BMC's account of machine {machine}"));
        Ok(Some(BmcAccount {
            attempt: Attempt::new(unsigned(row.attempt)),
            revision: u32::try_from(row.revision).map_err(|_| corrupt())?,
            username: row.username,
            driver: DRIVERS
                .iter()
                .find(|(_, word)| *word == row.driver)
                .map(|(it, _)| *it)
                .ok_or_else(corrupt)?,
            rotate: u32::try_from(row.rotate).map_err(|_| corrupt())?,
            state: state.map(|(state, _)| *state).ok_or_else(corrupt)?,
            destination: row.destination.0,
            certificate: row.certificate.map(|it| it.parse()).transpose().map_err(|_| corrupt())?,
            made_at: timestamp(row.made_us)?,
        }))
    }

    /// The password of that account.
    ///
    /// # Errors
    /// Fails if the seal key does not open it, or if the database cannot be read.
    pub async fn bmc_password(&self, machine: MachineId) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
        let query = sqlx::query_scalar!("select sealed from bmc_account where machine = $1", machine.get());
        let Some(sealed) = query.fetch_optional(self.pool()).await? else { return Ok(None) };
        self.seal().open(&place(machine.into()), &sealed).map(Some)
    }

    /// Replaces the stored account. An account of an earlier attempt changes nothing.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn put_bmc_account(
        &self,
        machine: MachineId,
        new: &NewBmcAccount<'_>,
    ) -> Result<(), StoreError> {
        let sealed = self.seal().seal(&place(machine.into()), new.password)?;
        let driver =
            DRIVERS.iter().find(|(driver, _)| *driver == new.driver).map_or("ipmi", |(_, word)| word);
        let mut tx = self.begin().await?;
        self.hold_seal(&mut tx).await?;
        let upsert = sqlx::query!(
            "insert into bmc_account as a (machine, attempt, revision, username, sealed, rotate, driver, destination)
             values ($1, $2, 1, $3, $4, $5, $6, $7)
             on conflict (machine) do update
             set attempt = excluded.attempt, revision = a.revision + 1, username = excluded.username,
               sealed = excluded.sealed, rotate = excluded.rotate, driver = excluded.driver,
               destination = excluded.destination, certificate = null, state = 'made', made_at = clock_timestamp()
             where a.attempt < excluded.attempt",
            machine.get(),
            signed(new.attempt.get()),
            new.username,
            sealed,
            i64::from(new.rotate),
            driver,
            Json(new.destination) as _
        );
        upsert.execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Records the state of the account that this attempt created.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn judge_bmc_account(
        &self,
        machine: MachineId,
        attempt: Attempt,
        state: BmcAccountState,
    ) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update bmc_account set state = $3 where machine = $1 and attempt = $2",
            machine.get(),
            signed(attempt.get()),
            state.word()
        );
        update.execute(self.pool()).await?;
        Ok(())
    }

    /// Records the certificate that the BMC showed to a rack that used the account of this attempt.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn pin_bmc_account(
        &self,
        machine: MachineId,
        attempt: Attempt,
        certificate: Sha256,
    ) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update bmc_account set certificate = $3 where machine = $1 and attempt = $2",
            machine.get(),
            signed(attempt.get()),
            certificate.to_string()
        );
        update.execute(self.pool()).await?;
        Ok(())
    }

    /// The private key (X25519) to which a machine seals the password that it generates in an attempt. It is derived from the seal key and
    /// is not stored.
    #[must_use]
    pub fn bmc_setup_key(&self, machine: MachineId, attempt: Attempt) -> Zeroizing<[u8; 32]> {
        let mut text = Uid::from(machine).get().as_bytes().to_vec();
        text.extend_from_slice(&attempt.get().to_be_bytes());
        self.seal().bmc_setup(&text)
    }
}
