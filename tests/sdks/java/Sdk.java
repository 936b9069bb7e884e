// The SDK for Java 2, with nothing set but its environment.

import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;

public class Sdk {
    public static void main(String[] arguments) {
        String bucket = arguments[0], hot = arguments[1], fresh = arguments[2];
        try (S3Client s3 = S3Client.builder().forcePathStyle(true).build()) {
            s3.putObject(put -> put.bucket(bucket).key(fresh), RequestBody.fromString("new"));
            System.out.println(length(s3, bucket, hot) + " " + length(s3, bucket, fresh));
        }
    }

    private static int length(S3Client s3, String bucket, String key) {
        return s3.getObjectAsBytes(get -> get.bucket(bucket).key(key)).asByteArray().length;
    }
}
