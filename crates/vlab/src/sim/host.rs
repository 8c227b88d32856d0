// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which host policy a step has, and what is set of it.

use experiment::scenario::ArmKind;
use experiment::scenario::HostPolicy;
use experiment::scenario::KnownPolicy;
use experiment::scenario::PolicyKey;
use experiment::scenario::PolicyKind;
use experiment::scenario::PolicySettings;
use experiment::scenario::PolicyValue;
use experiment::scenario::Scenario;
use scx_vcpu::config::Class;
use scx_vcpu::config::Config;
use scx_vcpu::config::DEFAULT_WEIGHT;
use scx_vcpu::config::Time;
use scx_vcpu::config::Worth;
use sim::hypervisor::Hypervisor;
use sim::hypervisor::Key;
use sim::hypervisor::Kind;
use sim::hypervisor::NAMES;
use sim::hypervisor::Settings;
use sim::hypervisor::Sharing;
use sim::hypervisor::Value;
use sim::hypervisor::Values;
use sim::hypervisor::named;
use sim::machine::NORMAL_WEIGHT;
use sim::machine::VmFacts;
use units::Ns;

use crate::reproduce::tuning::Tuning;
use crate::reproduce::tuning::own_slices;
use crate::reproduce::tuning::policy_of;
use crate::reproduce::tuning::tuned;
use crate::run::Unusable;
use crate::run::schedule::Step;

/// The host policy of a step.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// Its name.
    pub(crate) name: String,
    /// What is set of it.
    pub(crate) values: Values,
    /// As the host of real VMs has it: with its own times, whatever `sharing.slice` is,
    /// and what the policy file says.
    real: Option<Config>,
}

impl Chosen {
    /// The policy, ready to schedule.
    ///
    /// # Errors
    /// There is none of that name, or it has no such thing to set.
    pub(crate) fn policy(
        &self,
        sharing: &Sharing,
        tuning: &Tuning,
    ) -> anyhow::Result<Box<dyn Hypervisor>> {
        let Some(config) = &self.real else {
            return policy_of(&self.name, sharing, tuning, &self.values);
        };
        // What is open in a real host's policy no parameter of the papers fixes.
        let mut policy = tuned(&self.name, sharing, &Tuning::default())?;
        configure(&mut policy.settings, config);
        Ok(policy.build())
    }

    /// Has it slices of its own, whatever `sharing.slice` is, and nobody has set them?
    pub(super) fn own_slices(&self) -> Option<&'static str> {
        let is_left = self.values.is_empty() && self.real.is_none();
        own_slices(&self.name).filter(|_| is_left)
    }

    /// Does it choose the pCPU of a vCPU, as on a real host, instead of having a vCPU of
    /// each VM on each pCPU?
    pub(super) fn chooses_cores(&self) -> bool {
        let policy = HostPolicy::from_name(&self.name).filter(|_| self.real.is_some());
        policy.is_some_and(HostPolicy::chooses_cores)
    }

    /// Tells the VMs of a machine what the policy file says of those of a real host, which
    /// are called vlab0, vlab1 and so on.
    pub(super) fn tell(&self, vms: &mut [VmFacts]) {
        for (n, vm) in vms.iter_mut().enumerate() {
            let class = self.real.as_ref().map(|config| worth(config, n).class);
            vm.io_intensive |= class == Some(Class::Io);
            let cap = self.real.as_ref().and_then(|config| worth(config, n).cap);
            vm.cap_permille = cap.map_or(0, |cap| cap * 10);
        }
    }

    /// Weight of the n-th VM's vCPUs.
    pub(super) fn weight(&self, n: usize) -> u32 {
        let own = self.real.as_ref().map(|config| worth(config, n).weight);
        own.map_or(NORMAL_WEIGHT, |weight| {
            let scaled = u64::from(weight) * u64::from(NORMAL_WEIGHT) / u64::from(DEFAULT_WEIGHT);
            u32::try_from(scaled).unwrap_or(u32::MAX).max(2)
        })
    }
}

fn worth(config: &Config, n: usize) -> Worth {
    config.worth(&format!("-name vlab{n},"))
}

/// What a policy file says of a policy. Of those that have no table there it says nothing.
fn configure(settings: &mut Settings, config: &Config) {
    match settings {
        Settings::Credit1(own) => *own = config.credit1.settings(),
        Settings::Credit2(own) => {
            own.rules = config.credit2.settings();
            let file = &config.credit2;
            own.balance_period = period(file.balances, file.balance_period, own.balance_period);
        }
        Settings::Isacs(own) => {
            let file = &config.isacs;
            own.rules = file.settings();
            own.io_balance = file.balances_io();
            own.moves_any = file.moves_all();
            own.balance_period = period(file.balances, file.balance_period, own.balance_period);
        }
        Settings::Ische {
            rules,
            automatic,
            seed,
            within_share,
        } => {
            // Not config.ische.cpus: all pCPUs of the model are VMs'.
            *rules = config.ische.settings(&config.credit1);
            *automatic = config.ische.automatic();
            *within_share = config.ische.within_share();
            *seed = config.ische.seed.unwrap_or(*seed);
        }
        Settings::Vslicer(own) => *own = config.vslicer.settings(),
        _ => {}
    }
}

/// How often load is evened out: what the file says of it, or the simulator's own.
fn period(balances: Option<bool>, said: Option<Time>, own: Ns) -> Ns {
    match balances {
        Some(false) => Ns::ZERO,
        _ => said.map_or(own, |time| time.0),
    }
}

/// The policy of a step: its arm's, or the scenario's.
///
/// # Errors
/// The policy file is none, or says of a VM what the simulator does not have.
pub(crate) fn chosen(scenario: &Scenario, step: &Step<'_>) -> anyhow::Result<Chosen> {
    let spec = scenario.sim.clone().unwrap_or_default();
    let (policy, host_policy) = match step.arm {
        Some(arm) => (Some(&arm.kind), arm.host_policy),
        None => (None, None),
    };
    Ok(match (policy, host_policy) {
        (Some(ArmKind::Host { policy, settings }), _) => Chosen {
            name: policy.clone(),
            values: values(settings),
            real: None,
        },
        (_, Some(policy)) => Chosen {
            name: policy.name().to_owned(),
            values: Values::new(),
            real: Some(config(scenario, policy.name())?),
        },
        _ => Chosen {
            values: values(&spec.policy),
            name: spec.host,
            real: None,
        },
    })
}

/// The policy file of a scenario, or an empty one, for the policy of this name.
fn config(scenario: &Scenario, policy: &str) -> anyhow::Result<Config> {
    let text = scenario.host_config.as_deref().unwrap_or_default();
    let config = Config::parse(text, &format!("host_config of scenario {}", scenario.name))
        .map_err(|error| Unusable(error.to_string()))?;
    for vm in &config.vm {
        for (key, set) in [
            ("cap", vm.cap.is_some() && !heeds_caps(policy)),
            ("slice", vm.slice.is_some()),
            ("latency", vm.latency.is_some()),
            ("cpus", vm.cpus.is_some()),
        ] {
            if set {
                return Err(Unusable(format!(
                    "host policy: host_config sets {key} of the VM \"{}\"; the simulator reads class and weight of VMs there, and cap under credit1 and ische",
                    vm.pattern
                ))
                .into());
            }
        }
    }
    Ok(config)
}

/// Do VMs have no more than their caps under the policy of this name?
pub(crate) fn heeds_caps(name: &str) -> bool {
    let policy = named(name, &ANY);
    policy.is_some_and(|policy| policy.settings.heeds_caps())
}

/// For questions whose answer sharing does not change.
const ANY: Sharing = Sharing {
    vms_per_pcpu: 1,
    slice: Ns::from_ms(10),
    sweep_permille: 0,
};

/// Every host policy with what can be set of it, for scenarios to be checked against.
pub(crate) fn known() -> Vec<KnownPolicy> {
    let keys = |name: &str| named(name, &ANY).map_or(Vec::new(), |policy| policy.keys());
    let all = NAMES.iter().map(|name| KnownPolicy {
        name: (*name).to_owned(),
        keys: keys(name).iter().map(|own| key(own, &keys(name))).collect(),
    });
    all.collect()
}

fn key(own: &Key, all: &[Key]) -> PolicyKey {
    let is_on = |part: &str| {
        all.iter()
            .any(|key| key.name == part && key.default == Value::Switch(true))
    };
    PolicyKey {
        name: own.name.to_owned(),
        kind: match &own.kind {
            Kind::Duration(range) => PolicyKind::Duration(range.clone()),
            Kind::DurationOrNone(range) => PolicyKind::DurationOrNone(range.clone()),
            Kind::Number(range) => PolicyKind::Number(range.clone()),
            Kind::Switch => PolicyKind::Switch,
            Kind::Word(words) => {
                PolicyKind::Word(words.iter().map(|word| (*word).to_owned()).collect())
            }
        },
        part: own.part.map(|part| (part.to_owned(), is_on(part))),
    }
}

fn values(settings: &PolicySettings) -> Values {
    let value = |value: &PolicyValue| match value {
        PolicyValue::Duration(length) => Value::Duration(*length),
        PolicyValue::Number(number) => Value::Number(*number),
        PolicyValue::Switch(on) => Value::Switch(*on),
        PolicyValue::Word(word) => Value::Word(word.clone()),
    };
    let all = settings.iter();
    all.map(|(key, given)| (key.clone(), value(given)))
        .collect()
}
