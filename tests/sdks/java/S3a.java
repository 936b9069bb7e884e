// Hadoop's S3A, with nothing set but its environment and the place of the endpoint.

import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider;

public class S3a {
    public static void main(String[] arguments) throws IOException {
        Configuration settings = new Configuration();
        settings.set("fs.s3a.endpoint", System.getenv("AWS_ENDPOINT_URL_S3"));
        settings.set("fs.s3a.endpoint.region", System.getenv("AWS_REGION"));
        settings.set("fs.s3a.path.style.access", "true");
        if (System.getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != null) {
            settings.set("fs.s3a.aws.credentials.provider", WebIdentityTokenFileCredentialsProvider.class.getName());
        }
        try (FileSystem files = FileSystem.get(URI.create("s3a://" + arguments[0]), settings)) {
            try (FSDataOutputStream stream = files.create(new Path("/" + arguments[2]))) {
                stream.write("new".getBytes(StandardCharsets.UTF_8));
            }
            System.out.println(length(files, arguments[1]) + " " + length(files, arguments[2]));
        }
    }

    private static int length(FileSystem files, String key) throws IOException {
        try (FSDataInputStream stream = files.open(new Path("/" + key))) {
            return stream.readAllBytes().length;
        }
    }
}
