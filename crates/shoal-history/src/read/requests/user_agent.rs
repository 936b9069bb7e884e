//! Extracts the program or the job from a user agent.
//!
//! | client | user agent | job |
//! |---|---|---|
//! | S3A with a prefix | `etl/nightly, Hadoop 3.3.4, aws-sdk-java/1.12.262 …` | `etl_nightly` |
//! | its analytics reads | `etl_nightly__Hadoop_3.5.0 s3analyticsaccelerator/1.3.1` | `etl_nightly` |
//! | S3A without one | `Hadoop 3.3.4, aws-sdk-java/1.12.262 …` | `Hadoop` |
//! | others | `duckdb/v1.5.5(linux_amd64) python/3.11` | `duckdb` |

/// Maximum length of a job's name.
const NAME_BYTES_MAX: usize = 256;

/// Returns the program or the job; `None` if the user agent is empty. Versions are removed, so that an update
/// of a program does not create a new job.
pub(super) fn program(user_agent: &str) -> Option<String> {
    let agent = user_agent.trim();
    let prefix = agent
        .split_once(", Hadoop ")
        .or_else(|| agent.split_once("__Hadoop_"))
        .map(|(prefix, _)| prefix);
    let name = match prefix {
        // S3A sends the prefix in two spellings, one of which replaces special characters. Normalize both.
        Some(prefix) => prefix
            .chars()
            .map(|c| {
                if c.is_alphanumeric() || ".-".contains(c) {
                    c
                } else {
                    '_'
                }
            })
            .collect(),
        None => agent
            .split([' ', '/', '(', ','])
            .next()
            .unwrap_or(agent)
            .to_owned(),
    };
    let end = name.floor_char_boundary(NAME_BYTES_MAX);
    (!name.is_empty()).then(|| name[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::program;

    #[test]
    fn user_agents_of_real_clients_name_their_job_or_program() {
        for (agent, expected) in [
            (
                "cachejob/dag-42, Hadoop 3.3.4, aws-sdk-java/1.12.262 Linux/6.18 OpenJDK/17.0.15",
                Some("cachejob_dag-42"),
            ),
            (
                "cachejob/dag-42, Hadoop 3.5.0 aws-sdk-java/2.35.4 md/io#sync",
                Some("cachejob_dag-42"),
            ),
            (
                "cachejob_dag-42__Hadoop_3.5.0 s3analyticsaccelerator/1.3.1",
                Some("cachejob_dag-42"),
            ),
            ("Hadoop 3.3.4, aws-sdk-java/1.12.262 Linux/6.18", Some("Hadoop")),
            (
                "duckdb/v1.5.5(linux_amd64) python/3.11 d8cdaa33fd",
                Some("duckdb"),
            ),
            ("Boto3/1.44.5 md/Botocore#1.44.5 ua/2.1", Some("Boto3")),
            ("rclone/", Some("rclone")),
            ("curl", Some("curl")),
            ("", None),
        ] {
            assert_eq!(program(agent).as_deref(), expected, "{agent}");
        }
    }
}
