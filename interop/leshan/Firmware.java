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
import org.eclipse.leshan.client.servers.LwM2mServer;
import org.eclipse.leshan.core.model.ObjectLoader;
import org.eclipse.leshan.core.model.ObjectModel;
import org.eclipse.leshan.core.model.StaticModel;
import org.eclipse.leshan.core.node.LwM2mResource;
import org.eclipse.leshan.core.request.BindingMode;
import org.eclipse.leshan.core.request.argument.Arguments;
import org.eclipse.leshan.core.response.ExecuteResponse;
import org.eclipse.leshan.core.response.ReadResponse;
import org.eclipse.leshan.core.response.WriteResponse;
import org.eclipse.leshan.core.util.Hex;
import org.eclipse.leshan.transport.californium.client.endpoint.CaliforniumClientEndpointsProvider;
import org.eclipse.leshan.transport.californium.client.endpoint.coaps.CoapsClientProtocolProvider;

/**
 * A device with a firmware object on Eclipse Leshan's client, which gets its account from a bootstrap server: Firmware HOST:PORT IDENTITY KEY. What it
 * is given as a package it applies by a restart. "end" on stdin ends it.
 */
public class Firmware {
    static volatile String version = "1.0";
    static LeshanClient client;

    /** The firmware object (5), by push. */
    public static class Package extends BaseInstanceEnabler {
        volatile int state = 0;
        volatile int result = 0;
        volatile byte[] content = new byte[0];

        @Override
        public ReadResponse read(LwM2mServer server, int resource) {
            switch (resource) {
            case 3:
                return ReadResponse.success(resource, (long) state);
            case 5:
                return ReadResponse.success(resource, (long) result);
            case 9:
                return ReadResponse.success(resource, 1L);
            }
            return super.read(server, resource);
        }

        @Override
        public WriteResponse write(LwM2mServer server, boolean replace, int resource, LwM2mResource value) {
            if (resource != 0) {
                return super.write(server, replace, resource, value);
            }
            content = (byte[]) value.getValue();
            boolean reset = content.length == 0 || content.length == 1 && content[0] == 0;
            state = reset ? 0 : 2;
            result = 0;
            System.out.println("package " + content.length);
            return WriteResponse.success();
        }

        @Override
        public ExecuteResponse execute(LwM2mServer server, int resource, Arguments arguments) {
            if (resource != 2 || state != 2) {
                return ExecuteResponse.methodNotAllowed();
            }
            state = 3;
            new Thread(this::apply).start();
            return ExecuteResponse.success();
        }

        void apply() {
            try {
                Thread.sleep(500);
                client.stop(false);
                version = "2.0";
                state = 0;
                result = 1;
                client.start();
                System.out.println("applied");
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        @Override
        public List<Integer> getAvailableResourceIds(ObjectModel model) {
            return List.of(0, 2, 3, 5, 9);
        }
    }

    public static class Box extends Device {
        public Box() {
            super("Leshan", "Model 8", "SN-8", EnumSet.of(BindingMode.U));
        }

        @Override
        public ReadResponse read(LwM2mServer server, int resource) {
            return resource == 3 ? ReadResponse.success(resource, version) : super.read(server, resource);
        }

        @Override
        public List<Integer> getAvailableResourceIds(ObjectModel model) {
            List<Integer> all = new ArrayList<>(super.getAvailableResourceIds(model));
            if (!all.contains(3)) {
                all.add(3);
            }
            return all;
        }
    }

    public static void main(String[] args) throws Exception {
        ObjectsInitializer objects = new ObjectsInitializer(new StaticModel(ObjectLoader.loadDefault()));
        objects.setInstancesForObject(0, Security.pskBootstrap("coaps://" + args[0], args[1].getBytes(), Hex.decodeHex(args[2].toCharArray())));
        objects.setClassForObject(1, Server.class);
        objects.setInstancesForObject(3, new Box());
        objects.setInstancesForObject(5, new Package());
        LeshanClientBuilder builder = new LeshanClientBuilder("leshan-firmware");
        builder.setObjects(objects.createAll());
        builder.setEndpointsProviders(new CaliforniumClientEndpointsProvider.Builder(new CoapsClientProtocolProvider()).build());
        client = builder.build();
        client.start();
        System.out.println("started");
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine() && !lines.nextLine().trim().equals("end")) {
        }
        client.destroy(true);
        System.out.println("ended");
        System.exit(0);
    }
}
