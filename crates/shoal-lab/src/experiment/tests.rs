//! Experiments that are read, refused and run.

use std::path::PathBuf;

use super::{Experiment, Length};

const EXPERIMENT: &str = r#"
title = "small"
seeds = [1, 2]

[cluster]
nodes = 2
capacity = "40KiB"
block = "1KiB"
cooperation = "hierarchy"

[links]
client = "40Gbit/s"
peer = "15Gbit/s"
lake = "1Gbit/s"
lake_latency = "10ms"

[[change]]
links = ["peer-in", "peer-out"]
node = 1
at = "1s"
rate = "1Gbit/s"

[clients]
per_node = 2
requests = 4

[workload]
source = { kind = "zipf", objects = 50, object_size = "3KiB", reads = 100, exponent = 0.8 }

[measure]
warmup = 0.2
sample = "20ms"
"#;

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse(text, PathBuf::new(), Length::Full)
}

fn refusal(from: &str, to: &str) -> String {
    assert!(EXPERIMENT.contains(from));
    parse(&EXPERIMENT.replace(from, to)).unwrap_err()
}

#[test]
fn only_the_clients_that_work_read() {
    let text = EXPERIMENT
        .replace("[workload]", "[workload]\nclients = 1")
        .replace("warmup = 0.2", "");
    let results = parse(&text).unwrap().run(1, |_| ()).unwrap();
    let requests = results.outcomes[0].report.sources.total().requests;
    assert_eq!(requests, 100 * 3, "one of four clients");
}

#[test]
fn a_grid_runs_every_combination_with_every_seed() {
    let text = format!(
        "{EXPERIMENT}\n[grid]\ncluster.policy = [\"lru\", \"sieve\"]\n\
         [[grid.variant]]\nname = \"half\"\ncluster.l1_share = 0.5\n\
         [[grid.variant]]\nname = \"L2, only\"\ncluster.l1_share = 0.0\n"
    );
    let experiment = parse(&text).unwrap();
    assert_eq!(experiment.runs(), 8);
    let mut seen = Vec::new();
    let results = experiment.run(3, |done| seen.push(done)).unwrap();
    assert_eq!(seen, (1..=8).collect::<Vec<_>>());
    let names: Vec<_> = results
        .outcomes
        .iter()
        .map(|outcome| (outcome.name(), outcome.seed))
        .collect();
    assert_eq!(names[0], ("lru, half".to_owned(), 1));
    assert_eq!(names[7], ("sieve, L2, only".to_owned(), 2));
    let csv = results.csv();
    assert_eq!(csv.lines().count(), 9);
    assert!(csv.starts_with("cluster.policy,variant,seed,run_s,"), "{csv}");
    assert!(csv.contains("\nlru,\"L2, only\",1,"), "{csv}");
    assert_eq!(
        results,
        parse(&text).unwrap().run(1, |_| ()).unwrap(),
        "threads change nothing"
    );
    assert_ne!(
        results.outcomes[0].report, results.outcomes[1].report,
        "a seed does"
    );
    assert_ne!(
        results.outcomes[0].report, results.outcomes[2].report,
        "a variant does"
    );
}

#[test]
fn results_are_written_as_tables_and_plots() {
    let results = parse(EXPERIMENT).unwrap().run(1, |_| ()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    results.write(folder.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("samples.csv").lines().count() > 4);
    assert!(read("l1-0.svg").contains("node 1"));
    for name in ["run-time.svg", "sources.svg"] {
        assert!(read(name).starts_with("<svg"), "{name}");
    }
    let text = results.text();
    assert!(text.starts_with("small\n") && text.contains("\nall "), "{text}");
    let json: serde_json::Value = serde_json::from_str(&read("results.json")).unwrap();
    assert_eq!(json["outcomes"][1]["seed"], 2);
}

#[test]
fn an_object_of_more_blocks_than_a_run_holds_is_refused() {
    let told = refusal("object_size = \"3KiB\"", "object_size = \"1024TiB\"");
    assert!(
        told.contains("`workload.source.object_size` is") && told.contains("blocks are one object"),
        "{told}"
    );
    let told = refusal("[workload]", "[workload]\npasses = 0");
    assert!(told.contains("`workload.passes` is nothing"), "{told}");
}

#[test]
fn a_generated_workload_may_be_that_of_a_few_clients() {
    let reads = |clients: &str| {
        let text = EXPERIMENT
            .replace("[workload]", &format!("[workload]{clients}"))
            .replace("warmup = 0.2", "");
        let results = parse(&text).unwrap().run(1, |_| ()).unwrap();
        results.outcomes[0].report.reads.seconds.count
    };
    assert_eq!((reads(""), reads("\nclients = 1")), (400, 100));
}

#[test]
fn a_key_we_do_not_know_is_refused_with_the_nearest_one() {
    let told = refusal("capacity =", "capcity =");
    assert!(
        told.contains("capcity") && told.ends_with("hint: did you mean `capacity`?"),
        "{told}"
    );
    let told = refusal("\"hierarchy\"", "\"hierachy\"");
    assert!(told.ends_with("hint: did you mean `hierarchy`?"), "{told}");
    let told = refusal("kind = \"zipf\"", "kind = \"zip\"");
    assert!(told.ends_with("hint: did you mean `zipf`?"), "{told}");
}

#[test]
fn a_file_that_is_no_experiment_is_refused_with_the_reason() {
    assert!(parse("title = \n").unwrap_err().contains("line 1"));
    assert!(parse("title = 5\n").unwrap_err().contains("invalid type"));
    assert!(parse("title = \"t\"\n").unwrap_err().contains("missing field"));
}

#[test]
fn a_value_of_another_form_is_refused_with_the_right_one() {
    let told = refusal("\"40KiB\"", "\"40 kilobytes\"");
    assert!(
        told.contains("40 kilobytes") && told.contains("such as \"100GiB\""),
        "{told}"
    );
    let told = refusal("warmup = 0.2", "warmup = 2.0");
    assert!(
        told.contains("measure.warmup") && told.contains("hint: it is a share"),
        "{told}"
    );
    let told = refusal("[workload]", "[workload]\nscale = 0.0");
    assert!(told.contains("`workload.scale` is 0"), "{told}");
    let told = refusal("nodes = 2", "nodes = 0");
    assert!(told.contains("`cluster.nodes` is nothing"), "{told}");
}

#[test]
fn a_directory_has_room_for_256_nodes() {
    // Links without rates, so that this says nothing about how long a network of 256 nodes takes.
    let directory = |mode: &str, nodes: u32| {
        format!(
            "title = \"t\"\n[cluster]\nnodes = {nodes}\ncapacity = \"4KiB\"\nblock = \"1KiB\"\n\
             cooperation = \"{mode}\"\nclaims = true\n[links]\nlake_latency = \"10ms\"\n\
             [clients]\nper_node = 1\nrequests = 1\n[workload]\n\
             source = {{ kind = \"uniform\", objects = 50, object_size = \"1KiB\", reads = 5 }}\n"
        )
    };
    for mode in ["all-1r", "all-ar", "gwf"] {
        let results = parse(&directory(mode, 256)).unwrap().run(1, |_| ()).unwrap();
        let sources = results.outcomes[0].report.sources;
        assert!(sources.peer.requests > 0, "{mode}: {sources:?}");
        let told = parse(&directory(mode, 257)).unwrap_err();
        assert!(told.contains("`cluster.nodes` is 257\nhint: "), "{told}");
    }
    assert!(parse(&directory("hierarchy", 257)).is_ok());
}

#[test]
fn a_quick_run_is_the_same_experiment_with_less_of_it() {
    let text = format!("{EXPERIMENT}\n[quick]\nseeds = [7]\nworkload.source.reads = 10\n");
    assert_eq!(parse(&text).unwrap().runs(), 2);
    let quick = Experiment::parse(&text, PathBuf::new(), Length::Quick).unwrap();
    let results = quick.run(1, |_| ()).unwrap();
    assert_eq!(results.outcomes.len(), 1);
    let requests = results.outcomes[0].report.sources.total().requests;
    assert!(requests < 2 * 2 * 10 * 3 && requests > 0, "{requests}");
}

#[test]
fn demand_moves_between_nodes_that_there_are() {
    let moves = |to: u32| format!("[[move]]\nfrom = 0\nto = {to}\nat = \"1s\"\n\n[clients]");
    assert!(parse(&EXPERIMENT.replace("[clients]", &moves(1))).is_ok());
    let told = refusal("[clients]", &moves(2));
    assert!(told.contains("to node 2\nhint: there are 2"), "{told}");
}

#[test]
fn a_grid_that_says_nothing_is_refused() {
    let told = parse(&format!("{EXPERIMENT}\n[grid]\ncluster.policy = \"lru\"\n")).unwrap_err();
    assert!(
        told.contains("hint: write the values to try: cluster.policy = [\"lru\"]"),
        "{told}"
    );
    let told = parse(&format!(
        "{EXPERIMENT}\n[[grid.variant]]\ncluster.policy = \"lru\"\n"
    ))
    .unwrap_err();
    assert!(told.contains("has no name"), "{told}");
    let told = parse(&format!("{EXPERIMENT}\n[grid]\ncluster.polcy = [\"lru\"]\n")).unwrap_err();
    assert!(
        told.contains("(where cluster.polcy = lru)") && told.contains("`policy`"),
        "{told}"
    );
}

#[test]
fn the_experiment_of_the_tutorial_is_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to/simulate.md");
    let tutorial = std::fs::read_to_string(path).unwrap();
    let (_, from) = tutorial.split_once("```toml\n").unwrap();
    let experiment = parse(from.split_once("```").unwrap().0).unwrap();
    assert_eq!(experiment.runs(), 2 * 2 * 3);
}

#[test]
fn settings_that_a_lone_cache_ignores_add_no_stream() {
    let grid = "\n[grid]\ncluster.capacity = [\"40KiB\", \"80KiB\"]\nlinks.lake = [\"1Gbit/s\", \"2Gbit/s\"]\n\
                [[grid.variant]]\nname = \"halves\"\n[[grid.variant]]\nname = \"L2\"\ncluster.l1_share = 0.0\n";
    let streams = parse(&(EXPERIMENT.to_owned() + grid)).unwrap().merged().unwrap();
    let told: Vec<_> = streams
        .iter()
        .map(|stream| {
            (
                stream.labels[0].point.as_str(),
                stream.seed,
                stream.capacity_bytes,
            )
        })
        .collect();
    let rooms = [("40KiB", 80 << 10), ("80KiB", 160 << 10)];
    let expected = rooms.map(|(label, bytes)| [(label, 1, bytes), (label, 2, bytes)]);
    assert_eq!(told, expected.concat());
    assert!(
        streams
            .iter()
            .all(|stream| stream.labels.len() == 1 && stream.accesses.len() == 4 * 100)
    );
    assert_ne!(
        streams[0].accesses, streams[1].accesses,
        "another seed draws otherwise"
    );
}
