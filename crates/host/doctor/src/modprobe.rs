//! The texts of modprobe.d(5), and the parameters of the kernel's command line that block modules.

use crate::lines::lines;

/// A line that keeps a module from being loaded, by the module's name ([`canonical`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// It is never loaded: `install NAME COMMAND` with a command that loads nothing, or `module_blacklist=`.
    Always(String),
    /// Its aliases count no more, but its name does: `blacklist NAME`, `modprobe.blacklist=`.
    ByAlias(String),
}

/// The name of a module, in which `-` and `_` are the same.
#[must_use]
pub fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// The lines of a file that block modules.
#[must_use]
pub fn parse(text: &str) -> Vec<Block> {
    lines(text).iter().filter_map(|line| block(line)).collect()
}

fn block(line: &str) -> Option<Block> {
    let (directive, rest) = line.split_once(char::is_whitespace)?;
    let (name, command) = rest.trim_start().split_once(char::is_whitespace).unwrap_or((rest.trim_start(), ""));
    match directive {
        "blacklist" => Some(Block::ByAlias(canonical(name))),
        // A command such as `/sbin/modprobe --ignore-install NAME` loads it.
        "install" if !["modprobe", "insmod"].iter().any(|loader| command.contains(loader)) => {
            Some(Block::Always(canonical(name)))
        }
        _ => None,
    }
}

/// The parameters of the kernel's command line that block modules.
#[must_use]
pub fn command_line(text: &str) -> Vec<Block> {
    let names = |list: &str| list.split(',').filter(|name| !name.is_empty()).map(canonical).collect::<Vec<_>>();
    let blocks = |word: &str| match word.split_once('=') {
        Some(("module_blacklist", list)) => names(list).into_iter().map(Block::Always).collect(),
        Some(("modprobe.blacklist", list)) => names(list).into_iter().map(Block::ByAlias).collect(),
        _ => Vec::new(),
    };
    text.split_whitespace().flat_map(blocks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_block() {
        let text = "# install esp6 /bin/false\ninstall esp4 /bin/false\ninstall\tah4   /bin/true\n\
                    install algif-aead \\\n  /bin/false\nblacklist af_alg\n\
                    install tun /sbin/modprobe --ignore-install tun\nalias net-pf-38 af_alg\noptions esp6 x=1\n\
                    install nf_tables\n install  esp6  echo no; false\n";
        let always = |name: &str| Block::Always(name.to_owned());
        assert_eq!(
            parse(text),
            [
                always("esp4"),
                always("ah4"),
                always("algif_aead"),
                Block::ByAlias("af_alg".into()),
                always("nf_tables"),
                always("esp6")
            ]
        );
        assert!(parse("install\nblacklist").is_empty());
    }

    #[test]
    fn the_command_line() {
        let blocks =
            command_line("quiet modprobe.blacklist=esp4,algif-hash module_blacklist=af_alg, x=y module_blacklist");
        let by_alias = |name: &str| Block::ByAlias(name.to_owned());
        assert_eq!(blocks, [by_alias("esp4"), by_alias("algif_hash"), Block::Always("af_alg".into())]);
    }
}
