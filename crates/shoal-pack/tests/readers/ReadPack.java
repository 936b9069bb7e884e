import java.io.FileInputStream;
import java.util.Collections;
import java.util.HexFormat;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import java.util.zip.ZipInputStream;

/** Prints name and bytes of each member, in hexadecimal digits, as ZipFile and then as ZipInputStream reads them. */
public class ReadPack {
    public static void main(String[] arguments) throws Exception {
        StringBuilder lines = new StringBuilder();
        try (ZipFile pack = new ZipFile(arguments[0])) {
            for (ZipEntry member : Collections.list(pack.entries())) {
                add(lines, member, pack.getInputStream(member).readAllBytes());
            }
        }
        lines.append("stream\n");
        try (ZipInputStream pack = new ZipInputStream(new FileInputStream(arguments[0]))) {
            for (ZipEntry member = pack.getNextEntry(); member != null; member = pack.getNextEntry()) {
                add(lines, member, pack.readAllBytes());
            }
        }
        System.out.print(lines);
    }

    private static void add(StringBuilder lines, ZipEntry member, byte[] bytes) {
        HexFormat hex = HexFormat.of();
        lines.append(hex.formatHex(member.getName().getBytes(java.nio.charset.StandardCharsets.UTF_8)));
        lines.append(' ').append(hex.formatHex(bytes)).append('\n');
    }
}
