//! `shoal support`: what a person needs to find a fault from afar, in one folder.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use futures_util::future::join_all;
use shoal_node::admin::client::AdminClient;
use shoal_node::admin::members::Members;
use shoal_node::config::{Config, Role, Sources};

use super::admin::{AdminPort, failed};
use super::doctor;
use super::overview::pages_of;
use crate::cli::block_on;
use crate::cli::failure::Failure;
use crate::cli::output::{counted, print};

const AFTER_HELP: &str = "\
The files hold no secret key, session token or content of an object. They do hold names of nodes, buckets, folders
and objects, access keys, and addresses: read them before you send them away.";

/// The pages of each node, and those that are the same on all of them.
const NODE_PAGES: [(&str, &str); 3] = [
    ("status", "status.json"),
    ("metrics", "metrics.txt"),
    ("history", "history.json"),
];
const CLUSTER_PAGES: [(&str, &str); 4] = [
    ("members", "members.json"),
    ("tasks?limit=1000", "tasks.json"),
    ("hints", "hints.json"),
    ("plan", "plan.json"),
];

/// Collect the state of a cluster in a folder, for a person who looks for a fault
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Support {
    /// The folder, which the command makes
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Also this configuration of a node, as it is in effect, with secrets hidden
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    admin: AdminPort,
}

impl Support {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let configuration = self.config.as_ref().map(|file| {
            let sources = Sources {
                file: Some(file.clone()),
                ..Sources::of_process()
            };
            Ok::<_, Failure>(Config::load(&sources)?.config.to_toml(Role::Node))
        });
        let configuration = configuration.transpose()?;
        block_on(async move {
            let client = self.admin.client()?;
            let members = client.get::<Members>("/members").await;
            let members = members.map_err(failed("the cluster cannot be asked"))?;
            let mut files = collect(&client, &members).await;
            files.push(("doctor.txt".into(), doctor::report(&client, &members).await));
            files.extend(configuration.map(|text| ("configuration.toml".into(), text)));
            write(&self.folder, &files).map_err(|error| {
                let what = format!("{} cannot be written", self.folder.display());
                Failure::new(&what, &error).or_hinting("name a folder that does not exist yet")
            })?;
            print(&format!(
                "{} in {}\n",
                counted(files.len(), "file"),
                self.folder.display()
            ));
            Ok(())
        })
    }
}

/// Returns the pages as files. A page that does not come is a file that says why.
async fn collect(client: &AdminClient, members: &Members) -> Vec<(String, String)> {
    let of_nodes = members.members.iter().flat_map(|member| {
        let pages = match &member.name {
            own if *own == members.speaker => String::new(),
            other => pages_of(other),
        };
        // A name is as its operator wrote it, and may be no name of a file.
        let folder = member.name.replace(['/', '\\'], "_");
        NODE_PAGES.map(|(page, file)| (format!("{pages}/{page}"), format!("{folder}-{file}")))
    });
    let of_cluster = CLUSTER_PAGES.map(|(page, file)| (format!("/{page}"), file.to_owned()));
    let pages = of_nodes.chain(of_cluster).map(async |(path, file)| {
        let text = client.text(&path).await;
        (file, text.unwrap_or_else(|error| format!("{error}\n")))
    });
    join_all(pages).await
}

fn write(folder: &Path, files: &[(String, String)]) -> std::io::Result<()> {
    fs::create_dir(folder)?;
    for (name, text) in files {
        fs::File::create_new(folder.join(name))?.write_all(text.as_bytes())?;
    }
    Ok(())
}
