//! The module tree of one crate as its sources write it, and which file names things of which other file.
//!
//! Names are resolved like the compiler does for ordinary code: `crate`, `self`, `super`, imports, globs and re-exports
//! are followed to the file that defines the item. Test code is left out, and so are `mod` declarations. A re-export of
//! something below the module itself is no dependency, because it only says what the module's parts are called from
//! outside.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::visit::Visit;

/// Longer chains of re-exports are not followed.
const DEPTH: usize = 24;

/// The files of a crate, and for each pair of files what the first names of the second.
pub(crate) struct Crate {
    /// Paths below the crate's root folder.
    pub(crate) files: Vec<String>,
    /// From file to file, with the names that do it.
    pub(crate) edges: BTreeMap<(usize, usize), BTreeSet<String>>,
    modules: Vec<Module>,
}

struct Module {
    file: usize,
    parent: Option<usize>,
    children: HashMap<String, usize>,
    items: HashSet<String>,
    imports: Vec<Import>,
    globs: Vec<Vec<String>>,
    /// Every other path that the code writes.
    paths: Vec<Vec<String>>,
}

impl Module {
    fn new(file: usize, parent: Option<usize>) -> Self {
        Self {
            file,
            parent,
            children: HashMap::new(),
            items: HashSet::new(),
            imports: Vec::new(),
            globs: Vec::new(),
            paths: Vec::new(),
        }
    }
}

struct Import {
    name: String,
    path: Vec<String>,
    /// Whether it has any visibility, so that it is a re-export.
    public: bool,
}

/// The definition that a path leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Module(usize),
    Item(usize),
}

impl Crate {
    /// Reads the crate whose root file is `root`; paths are given below `base`.
    pub(crate) fn read(root: &Path, base: &Path) -> Self {
        let mut reader = Reader { base: base.to_owned(), files: Vec::new(), modules: Vec::new() };
        reader.file(root, root.parent().expect("a folder"), None);
        let edges = edges(&reader.modules);
        Self { files: reader.files, edges, modules: reader.modules }
    }

    /// Every path that begins with the name of another crate.
    pub(crate) fn names_of(&self, other: &str) -> BTreeSet<Vec<String>> {
        let all = self.modules.iter().flat_map(|module| {
            let imports = module.imports.iter().map(|import| &import.path);
            imports.chain(&module.globs).chain(&module.paths)
        });
        all.filter(|path| path[0] == other).cloned().collect()
    }

    /// The circles: sets of more than one file in which each file leads to every other.
    pub(crate) fn circles(&self) -> Vec<Vec<usize>> {
        let mut next = vec![Vec::new(); self.files.len()];
        for (from, to) in self.edges.keys() {
            next[*from].push(*to);
        }
        let reach: Vec<HashSet<usize>> = (0..next.len()).map(|from| reachable(&next, from)).collect();
        let mut seen = HashSet::new();
        let mut circles = Vec::new();
        for from in 0..next.len() {
            if !seen.contains(&from) && reach[from].contains(&from) {
                let circle: Vec<usize> =
                    (0..next.len()).filter(|to| reach[from].contains(to) && reach[*to].contains(&from)).collect();
                seen.extend(circle.iter().copied());
                circles.push(circle);
            }
        }
        circles
    }
}

fn reachable(next: &[Vec<usize>], from: usize) -> HashSet<usize> {
    let mut seen = HashSet::new();
    let mut todo = next[from].clone();
    while let Some(file) = todo.pop() {
        if seen.insert(file) {
            todo.extend(&next[file]);
        }
    }
    seen
}

struct Reader {
    base: PathBuf,
    files: Vec<String>,
    modules: Vec<Module>,
}

impl Reader {
    /// Reads a file as a module; `folder` is where its own modules lie.
    fn file(&mut self, path: &Path, folder: &Path, parent: Option<usize>) -> usize {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.files.push(path.strip_prefix(&self.base).unwrap_or(path).display().to_string());
        self.module(self.files.len() - 1, parent, &syntax.items, path.parent().expect("a folder"), folder)
    }

    /// `beside` is the folder of the file, where `#[path]` starts; `folder` is that of the module's children.
    fn module(
        &mut self,
        file: usize,
        parent: Option<usize>,
        items: &[syn::Item],
        beside: &Path,
        folder: &Path,
    ) -> usize {
        let own = self.modules.len();
        self.modules.push(Module::new(file, parent));
        for item in items {
            if is_test(attributes(item)) {
                continue;
            }
            match item {
                syn::Item::Mod(item) => {
                    let name = item.ident.unraw().to_string();
                    let child = match &item.content {
                        Some((_, items)) => {
                            self.module(file, Some(own), items, &folder.join(&name), &folder.join(&name))
                        }
                        None => match path_attribute(&item.attrs) {
                            Some(path) => {
                                let path = beside.join(path);
                                let folder = path.parent().expect("a folder").to_owned();
                                self.file(&path, &folder, Some(own))
                            }
                            None => {
                                let inner = folder.join(&name);
                                let flat = folder.join(format!("{name}.rs"));
                                let path = if flat.is_file() { flat } else { inner.join("mod.rs") };
                                self.file(&path, &inner, Some(own))
                            }
                        },
                    };
                    self.modules[own].children.insert(name, child);
                }
                item => {
                    if let Some(name) = name_of(item) {
                        self.modules[own].items.insert(name);
                    }
                    Paths { module: &mut self.modules[own] }.visit_item(item);
                }
            }
        }
        own
    }
}

/// Collects the paths and imports of a module's code.
struct Paths<'a> {
    module: &'a mut Module,
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            syn::visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        if item.leading_colon.is_none() {
            self.tree(&item.tree, &mut Vec::new(), public);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let words = path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect();
            self.path(words, false);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(function) = &*call.func
            && let Some(name) = function.path.get_ident()
        {
            self.path(vec![name.unraw().to_string()], true);
        }
        syn::visit::visit_expr_call(self, call);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if item.ident.is_some() {
            // A definition: names in it belong to where it is used, but for those that begin at the root of the crate.
            let mut module = Module::new(self.module.file, self.module.parent);
            Paths { module: &mut module }.tokens(item.mac.tokens.clone());
            self.module.paths.extend(module.paths.into_iter().filter(|path| path[0] == "crate"));
        } else {
            self.visit_macro(&item.mac);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

impl Paths<'_> {
    fn tree(&mut self, tree: &syn::UseTree, before: &mut Vec<String>, public: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.unraw().to_string());
                self.tree(&path.tree, before, public);
                before.pop();
            }
            syn::UseTree::Name(name) => self.import(&name.ident, &name.ident, before, public),
            syn::UseTree::Rename(rename) => self.import(&rename.ident, &rename.rename, before, public),
            syn::UseTree::Glob(_) => self.module.globs.push(before.clone()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree, before, public)),
        }
    }

    fn import(&mut self, ident: &syn::Ident, name: &syn::Ident, before: &[String], public: bool) {
        let mut path = before.to_vec();
        let mut name = name.unraw().to_string();
        if ident == "self" {
            if name == "self" {
                name = before.last().cloned().unwrap_or_default();
            }
        } else {
            path.push(ident.unraw().to_string());
        }
        self.module.imports.push(Import { name, path, public });
    }

    /// Notes a path. A single word in small letters is most likely a variable, unless it is called.
    fn path(&mut self, path: Vec<String>, called: bool) {
        if path.len() > 1 || called || path[0].starts_with(|first: char| first.is_uppercase()) {
            self.module.paths.push(path);
        }
    }

    /// Macro calls are not parsed: each run of words joined by `::` in them counts as a path.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        // A word after a dot is a field or a method, and one after a dollar sign the macro's own variable.
        let mut before = ' ';
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    let word = ident.unraw().to_string();
                    if colons == 2 && !path.is_empty() {
                        path.push(word);
                    } else {
                        self.end(&mut path, false);
                        if before != '.' && (before != '$' || word == "crate") {
                            path.push(word);
                        }
                    }
                    (colons, before) = (0, ' ');
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => (colons, before) = (colons + 1, ':'),
                TokenTree::Punct(punct) => {
                    self.end(&mut path, punct.as_char() == '!');
                    (colons, before) = (0, punct.as_char());
                }
                TokenTree::Group(group) => {
                    self.end(&mut path, group.delimiter() == Delimiter::Parenthesis);
                    (colons, before) = (0, ' ');
                    self.tokens(group.stream());
                }
                TokenTree::Literal(_) => {
                    self.end(&mut path, false);
                    (colons, before) = (0, ' ');
                }
            }
        }
        self.end(&mut path, false);
    }

    fn end(&mut self, path: &mut Vec<String>, called: bool) {
        if !path.is_empty() {
            self.path(std::mem::take(path), called);
        }
    }
}

/// Follows every path of every module to the file that defines its item.
fn edges(modules: &[Module]) -> BTreeMap<(usize, usize), BTreeSet<String>> {
    let mut edges: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
    let mut note = |from: usize, to: usize, name: &[String]| {
        if from != to {
            edges.entry((from, to)).or_default().insert(name.join("::"));
        }
    };
    for (index, module) in modules.iter().enumerate() {
        for path in &module.paths {
            if let Some(Found::Item(at)) = resolve(modules, index, path, DEPTH) {
                note(module.file, modules[at].file, path);
            }
        }
        for import in &module.imports {
            // A module that is only imported is no dependency; what is named through it is one, and is in `paths`.
            let Some(Found::Item(at)) = resolve(modules, index, &import.path, DEPTH) else { continue };
            if !(import.public && is_below(modules, at, index)) {
                note(module.file, modules[at].file, &import.path);
            }
        }
    }
    edges
}

fn is_below(modules: &[Module], mut at: usize, above: usize) -> bool {
    while let Some(parent) = modules[at].parent {
        if parent == above {
            return true;
        }
        at = parent;
    }
    false
}

/// The definition that `path`, written in `module`, leads to; none outside the crate.
fn resolve(modules: &[Module], module: usize, path: &[String], depth: usize) -> Option<Found> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(walk(modules, root(modules, module), rest, depth)),
        "self" => Some(walk(modules, module, rest, depth)),
        "super" => {
            let parent = modules[module].parent?;
            match rest.first().map(String::as_str) {
                Some("super") => resolve(modules, parent, rest, depth),
                _ => Some(walk(modules, parent, rest, depth)),
            }
        }
        "Self" => None,
        _ => match lookup(modules, module, first, !rest.is_empty(), depth)? {
            Found::Module(at) => Some(walk(modules, at, rest, depth)),
            item => Some(item),
        },
    }
}

fn root(modules: &[Module], mut module: usize) -> usize {
    while let Some(parent) = modules[module].parent {
        module = parent;
    }
    module
}

/// Goes down from a module that is known to belong to the crate. What no source defines was made by a macro of that
/// module.
fn walk(modules: &[Module], module: usize, path: &[String], depth: usize) -> Found {
    let Some((first, rest)) = path.split_first() else { return Found::Module(module) };
    match lookup(modules, module, first, !rest.is_empty(), depth) {
        Some(Found::Module(at)) => walk(modules, at, rest, depth),
        Some(item) => item,
        None => Found::Item(module),
    }
}

/// A name in a module's scope. `onward` is whether more of the path follows, which tells a module from an item of its
/// name.
fn lookup(modules: &[Module], module: usize, name: &str, onward: bool, depth: usize) -> Option<Found> {
    let depth = depth.checked_sub(1)?;
    let scope = &modules[module];
    let child = scope.children.get(name).map(|child| Found::Module(*child));
    if child.is_some() && (onward || !scope.items.contains(name)) {
        return child;
    }
    if scope.items.contains(name) {
        return Some(Found::Item(module));
    }
    for import in scope.imports.iter().filter(|import| import.name == name) {
        if import.path.len() == 1 && import.path[0] == name {
            continue;
        }
        if let Some(found) = resolve(modules, module, &import.path, depth) {
            return Some(found);
        }
    }
    if scope.imports.iter().any(|import| import.name == name) {
        return None;
    }
    scope.globs.iter().find_map(|glob| {
        let Some(Found::Module(at)) = resolve(modules, module, glob, depth) else { return None };
        lookup(modules, at, name, onward, depth)
    })
}

fn name_of(item: &syn::Item) -> Option<String> {
    use syn::Item;
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(ident.unraw().to_string())
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item;
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether the attributes leave the item to tests: `#[test]`, or a `#[cfg]` that asks for `test` other than by `not`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|list| {
                    let text = list.tokens.to_string();
                    text == "test" || text.starts_with("all") && text.contains("test") && !text.contains("not")
                })
    })
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find(|attribute| attribute.path().is_ident("path")).and_then(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else { return None };
        Some(text.value())
    })
}
