//! The protection of traffic on this machine, and the removal of what is left where nothing does.

use super::{Error, FOLDER, clear_ipsec, clear_tcp_ao, named, system};
use sealane_sys::{nft, runtime};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;

/// The network namespaces with a name.
const NAMED: &str = "/run/netns";

/// The protection of one network namespace, by an instance that runs or by what one has left.
#[derive(Debug)]
pub struct InForce {
    /// The namespace.
    pub place: Place,
    /// Whether policies of IPsec, or defaults that block, are in force.
    pub ipsec: bool,
    /// The number of prefixes whose TCP connections are signed or dropped.
    pub peers: usize,
}

/// A network namespace.
#[derive(Debug)]
pub enum Place {
    /// The namespace of this process.
    Here,
    /// One with a name.
    Named(String),
    /// Another one, known by the file of its policies, which is left if the namespace itself is gone.
    File(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Here => f.write_str("this network namespace"),
            Place::Named(name) => write!(f, "network namespace {name}"),
            Place::File(file) => {
                write!(f, "a network namespace without a name, or one that is gone and has left {file}")
            }
        }
    }
}

/// The protection of the current namespace, of all that have a name, and of others for which a daemon has kept policies.
///
/// # Errors
/// The kernel's. CAP_SYS_ADMIN is needed for other namespaces.
pub fn in_force() -> Result<Vec<InForce>, Error> {
    let folder = runtime::folder().unwrap_or_else(|| FOLDER.into());
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for name in namespaces() {
        let netns = named(name.as_deref())?;
        let place = name.map_or(Place::Here, Place::Named);
        if !known.insert(netns.cookie().map_err(system(place.to_string()))?) {
            continue;
        }
        let ipsec =
            sealane_ipsec::protects(&netns, &folder).map_err(system(format!("the rules of IPsec in {place}")))?;
        let peers = netns.run(nft::left).map_err(system(format!("the rules of TCP-AO in {place}")))?.len();
        if ipsec || peers > 0 {
            found.push(InForce { place, ipsec, peers });
        }
    }
    let others = sealane_ipsec::protected(&folder).into_iter().filter(|cookie| !known.contains(cookie));
    let file = |cookie| Place::File(folder.join(format!("policies.{cookie}")).display().to_string());
    found.extend(others.map(|cookie| InForce { place: file(cookie), ipsec: true, peers: 0 }));
    Ok(found)
}

/// Takes away what ended instances have left in the current namespace and in all that have a name: the caller has asked
/// [`in_force`], which found nothing.
///
/// # Errors
/// `AddrInUse` while an instance runs; otherwise the kernel's.
pub fn clear_all() -> Result<(), Error> {
    for name in namespaces() {
        clear_tcp_ao(name.as_deref())?;
        clear_ipsec(name.as_deref())?;
    }
    Ok(())
}

fn namespaces() -> Vec<Option<String>> {
    let names = fs::read_dir(NAMED).into_iter().flatten().flatten().filter_map(|e| e.file_name().into_string().ok());
    // A name may be left whose namespace is gone.
    let there = names.filter(|name| named(Some(name)).is_ok());
    [None].into_iter().chain(there.map(Some)).collect()
}
