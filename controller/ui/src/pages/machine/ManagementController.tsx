import { Link } from '@tanstack/react-router';
import type { Schemas } from '../../api/client';
import type { Machine } from '../../api/object';
import { pageOf } from '../../app/sections';
import { Copy, Facts } from '../../parts/Facts';
import { Dot } from '../../parts/State';
import { Time } from '../../parts/Time';
import { accountOf } from './account';
import css from './Machine.module.css';

/** The BMC as it is declared, as commissioning found it, the account that Basalt has on it, and the certificate it is known by. */
export function ManagementController({ machine: { spec, status } }: { machine: Machine }) {
  const { bmc: declared } = spec;
  const { bmc: found, power } = status;
  if (!declared && !found) return null;
  const other = found?.address && declared?.address && found.address !== declared.address;
  return (
    <section className={css.part} aria-labelledby="bmc">
      <h2 id="bmc">Management controller</h2>
      {found?.problem && (
        <p className={css.verdict}>
          <span>
            <b>No account was made on it.</b> {found.problem}
          </span>
        </p>
      )}
      <div className={css.columns}>
        <Facts
          of={[
            ['Driver', declared?.driver ?? found?.driver],
            ['Address', declared?.address && <Copy text={declared.address} />],
            ['Declared account', declared?.username],
            ['Account', found?.account && <Account of={found.account} />],
            ['Read by', power?.rack && <Link to={pageOf('racks', power.rack)}>{power.rack}</Link>],
            ['Certificate', power?.certificate && <Copy text={power.certificate} />],
          ]}
        />
        <Facts
          of={[
            ['Found at', found?.address && <><Copy text={found.address} />{other && <span className="muted"> · another address is declared</span>}</>],
            ['Address by', found?.address_source && (found.address_source === 'dhcp' ? 'DHCP' : 'hand')],
            ['MAC', found?.mac && <Copy text={found.mac} />],
            ['Maker', found?.vendor],
            ['Firmware', found?.firmware],
            ['LAN channel', found?.channel],
          ]}
        />
      </div>
    </section>
  );
}

function Account({ of }: { of: Schemas['BmcAccountStatus'] }) {
  const { tone, words } = accountOf(of);
  return (
    <>
      <span className="mono">{of.username}</span>, password {of.revision}, made <Time at={of.made_at} />
      <br />
      <Dot tone={tone} /> <span className="muted">{words}</span>
    </>
  );
}
