import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Scanner;

import org.eclipse.leshan.client.LeshanClient;
import org.eclipse.leshan.client.LeshanClientBuilder;
import org.eclipse.leshan.client.object.Device;
import org.eclipse.leshan.client.object.Security;
import org.eclipse.leshan.client.object.Server;
import org.eclipse.leshan.client.resource.BaseInstanceEnabler;
import org.eclipse.leshan.client.resource.ObjectsInitializer;
import org.eclipse.leshan.client.send.ManualDataSender;
import org.eclipse.leshan.client.servers.LwM2mServer;
import org.eclipse.leshan.core.model.ObjectLoader;
import org.eclipse.leshan.core.model.ObjectModel;
import org.eclipse.leshan.core.model.StaticModel;
import org.eclipse.leshan.core.model.InvalidDDFFileException;
import org.eclipse.leshan.core.request.BindingMode;
import org.eclipse.leshan.core.request.ContentFormat;
import org.eclipse.leshan.core.request.argument.Arguments;
import org.eclipse.leshan.core.response.ExecuteResponse;
import org.eclipse.leshan.core.response.ReadResponse;
import org.eclipse.leshan.core.util.Hex;
import org.eclipse.leshan.transport.californium.client.endpoint.CaliforniumClientEndpointsProvider;
import org.eclipse.leshan.transport.californium.client.endpoint.coaps.CoapsClientProtocolProvider;

/**
 * A sensor on Eclipse Leshan's client: Peer HOST:PORT IDENTITY KEY MODEL, or Peer HOST:PORT CERTIFICATE KEY MODEL SERVER with the names of files in DER. Each line of stdin is a temperature that it measures, "send" sends it, "end" ends it.
 */
public class Peer {
    public static class Sensor extends BaseInstanceEnabler {
        double value = 20.5;

        void set(double v) {
            value = v;
            fireResourceChange(5700);
        }

        @Override
        public ReadResponse read(LwM2mServer server, int resource) {
            switch (resource) {
            case 5700:
                return ReadResponse.success(resource, value);
            case 5701:
                return ReadResponse.success(resource, "Cel");
            }
            return super.read(server, resource);
        }

        @Override
        public ExecuteResponse execute(LwM2mServer server, int resource, Arguments arguments) {
            System.out.println("executed " + resource);
            return ExecuteResponse.success();
        }

        @Override
        public List<Integer> getAvailableResourceIds(ObjectModel model) {
            return List.of(5605, 5700, 5701);
        }
    }

    public static class Box extends Device {
        public Box() {
            super("Leshan", "Model 7", "SN-7", EnumSet.of(BindingMode.U));
        }

        @Override
        public ExecuteResponse execute(LwM2mServer server, int resource, Arguments arguments) {
            System.out.println("executed " + resource);
            return ExecuteResponse.success();
        }
    }

    static byte[] bytes(String file) throws java.io.IOException {
        return java.nio.file.Files.readAllBytes(java.nio.file.Path.of(file));
    }

    public static void main(String[] args) throws Exception {
        List<ObjectModel> models = new ArrayList<>(ObjectLoader.loadDefault());
        models.addAll(ObjectLoader.loadDdfFile(new java.io.FileInputStream(args[3]), "3303.xml"));
        ObjectsInitializer objects = new ObjectsInitializer(new StaticModel(models));
        if (args.length > 4) {
            objects.setInstancesForObject(0, Security.x509("coaps://" + args[0], 123, bytes(args[1]), bytes(args[2]), bytes(args[4])));
        } else {
            objects.setInstancesForObject(0, Security.psk("coaps://" + args[0], 123, args[1].getBytes(), Hex.decodeHex(args[2].toCharArray())));
        }
        objects.setInstancesForObject(1, new Server(123, 60));
        objects.setInstancesForObject(3, new Box());
        Sensor sensor = new Sensor();
        objects.setInstancesForObject(3303, sensor);
        LeshanClientBuilder builder = new LeshanClientBuilder("leshan");
        builder.setObjects(objects.createAll());
        builder.setDataSenders(new ManualDataSender());
        builder.setEndpointsProviders(new CaliforniumClientEndpointsProvider.Builder(new CoapsClientProtocolProvider()).build());
        LeshanClient client = builder.build();
        client.start();
        System.out.println("started");
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String line = lines.nextLine().trim();
            if (line.equals("end")) {
                break;
            }
            if (line.equals("send")) {
                LwM2mServer server = client.getRegisteredServers().values().iterator().next();
                client.getSendService().sendData(server, ContentFormat.SENML_CBOR, List.of("/3303/0/5700"), 10_000);
                System.out.println("sent");
                continue;
            }
            sensor.set(Double.parseDouble(line));
        }
        client.destroy(true);
        System.out.println("ended");
        System.exit(0);
    }
}
