import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Scanner;

import org.eclipse.leshan.client.californium.LeshanClient;
import org.eclipse.leshan.client.californium.LeshanClientBuilder;
import org.eclipse.leshan.client.object.Device;
import org.eclipse.leshan.client.object.Security;
import org.eclipse.leshan.client.object.Server;
import org.eclipse.leshan.client.resource.BaseInstanceEnabler;
import org.eclipse.leshan.client.resource.ObjectsInitializer;
import org.eclipse.leshan.client.servers.ServerIdentity;
import org.eclipse.leshan.core.model.ObjectLoader;
import org.eclipse.leshan.core.model.ObjectModel;
import org.eclipse.leshan.core.model.StaticModel;
import org.eclipse.leshan.core.request.BindingMode;
import org.eclipse.leshan.core.response.ReadResponse;
import org.eclipse.leshan.core.util.Hex;

/** A sensor of LwM2M 1.0 on Eclipse Leshan's client of 1.5: Old HOST:PORT IDENTITY KEY MODEL. Each line of stdin is a temperature that it measures, "end" ends it. */
public class Old {
    public static class Sensor extends BaseInstanceEnabler {
        double value = 20.5;

        void set(double v) {
            value = v;
            fireResourcesChange(5700);
        }

        @Override
        public ReadResponse read(ServerIdentity identity, int resource) {
            switch (resource) {
            case 5700:
                return ReadResponse.success(resource, value);
            case 5701:
                return ReadResponse.success(resource, "Cel");
            }
            return super.read(identity, resource);
        }

        @Override
        public List<Integer> getAvailableResourceIds(ObjectModel model) {
            return Arrays.asList(5700, 5701);
        }
    }

    public static void main(String[] args) throws Exception {
        List<ObjectModel> models = new ArrayList<>(ObjectLoader.loadDefault());
        models.addAll(ObjectLoader.loadDdfFile(new java.io.FileInputStream(args[3]), "3303.xml"));
        ObjectsInitializer objects = new ObjectsInitializer(new StaticModel(models));
        objects.setInstancesForObject(0, Security.psk("coaps://" + args[0], 123, args[1].getBytes(), Hex.decodeHex(args[2].toCharArray())));
        objects.setInstancesForObject(1, new Server(123, 60, BindingMode.U, false));
        objects.setInstancesForObject(3, new Device("Leshan", "Model 1", "SN-1", "U"));
        Sensor sensor = new Sensor();
        objects.setInstancesForObject(3303, sensor);
        LeshanClientBuilder builder = new LeshanClientBuilder("leshan-1");
        builder.setObjects(objects.createAll());
        LeshanClient client = builder.build();
        client.start();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String line = lines.nextLine().trim();
            if (line.equals("end")) {
                break;
            }
            sensor.set(Double.parseDouble(line));
        }
        client.destroy(true);
        System.exit(0);
    }
}
