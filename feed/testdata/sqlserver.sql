-- acquire
SELECT p.* FROM partitions p WHERE p.status = 'Available' AND ((((owner IS NULL OR owner = '') AND (claimant IS NULL OR claimant = '' OR claimant = @p1)) OR until IS NULL OR until <= SYSUTCDATETIME())) AND ((EXISTS (SELECT 1 FROM items i WHERE i.partition_id = p.id AND i.status = 'Available' AND i.gate = p.gate AND (i.not_before IS NULL OR i.not_before <= SYSUTCDATETIME())) OR (NOT EXISTS (SELECT 1 FROM items i WHERE i.partition_id = p.id AND i.status = 'Available' AND i.gate = p.gate) AND (EXISTS (SELECT 1 FROM items i WHERE i.partition_id = p.id AND i.status = 'Failed' AND i.gate = p.gate) OR EXISTS (SELECT 1 FROM items i WHERE i.partition_id = p.id AND i.status = 'Available' AND i.gate > p.gate) OR EXISTS (SELECT 1 FROM items i WHERE i.partition_id = p.id AND i.status = 'Failed' AND i.gate > p.gate) OR (p.sealed = @p2 AND NOT EXISTS (SELECT 1 FROM items i WHERE i.partition_id = p.id AND i.status = 'Failed') AND NOT EXISTS (SELECT 1 FROM items i WHERE i.partition_id = p.id AND i.status = 'Available')))))) ORDER BY CASE WHEN p.until IS NULL THEN 0 ELSE 1 END, p.until, p.id OFFSET 0 ROW FETCH NEXT 10 ROWS ONLY;
UPDATE partitions SET gate = gate WHERE id IN (@p1);
SELECT "partitions"."id","partitions"."gate","partitions"."status","partitions"."owner","partitions"."until","partitions"."epoch","partitions"."sealed","partitions"."version","partitions"."claimant" FROM "partitions" WHERE (id IN (@p1) AND status = 'Available') AND ((((owner IS NULL OR owner = '') AND (claimant IS NULL OR claimant = '' OR claimant = @p2)) OR until IS NULL OR until <= SYSUTCDATETIME())) ORDER BY id;
SELECT SYSUTCDATETIME();
UPDATE "partitions" SET "claimant"=@p1,"epoch"=epoch + 1,"owner"=@p2,"until"=@p3,"version"=version + 1 WHERE id IN (@p4);

-- renew
UPDATE partitions SET gate = gate WHERE id IN (@p1);
SELECT "partitions"."id","partitions"."gate","partitions"."status","partitions"."owner","partitions"."until","partitions"."epoch","partitions"."sealed","partitions"."version","partitions"."claimant" FROM "partitions" WHERE owner = @p1 AND id IN (@p2) ORDER BY id;
SELECT SYSUTCDATETIME();
UPDATE "partitions" SET "until"=@p1,"version"=version + 1 WHERE id IN (@p2);

-- release
UPDATE partitions SET gate = gate WHERE id IN (@p1);
SELECT "partitions"."id","partitions"."gate","partitions"."status","partitions"."owner","partitions"."until","partitions"."epoch","partitions"."sealed","partitions"."version","partitions"."claimant" FROM "partitions" WHERE owner = @p1 AND (id = @p2 AND epoch = @p3) ORDER BY id;
SELECT SYSUTCDATETIME();
UPDATE "partitions" SET "owner"=@p1,"until"=CASE WHEN claimant IS NULL OR claimant = '' THEN SYSUTCDATETIME() ELSE @p2 END,"version"=version + 1 WHERE id IN (@p3);

-- claim
SELECT CASE WHEN p.claimant IS NULL OR p.claimant = '' THEN p.owner ELSE p.claimant END AS owner, COUNT(*) AS n FROM partitions p WHERE p.status = 'Available' AND CASE WHEN p.claimant IS NULL OR p.claimant = '' THEN p.owner ELSE p.claimant END <> '' AND NOT p.until <= SYSUTCDATETIME() GROUP BY CASE WHEN p.claimant IS NULL OR p.claimant = '' THEN p.owner ELSE p.claimant END;
SELECT "partitions"."id","partitions"."gate","partitions"."status","partitions"."owner","partitions"."until","partitions"."epoch","partitions"."sealed","partitions"."version","partitions"."claimant" FROM "partitions" WHERE owner = @p1 AND (claimant IS NULL OR claimant = '') AND status = 'Available' ORDER BY id OFFSET 0 ROW FETCH NEXT 1 ROWS ONLY;
UPDATE "partitions" SET "claimant"=@p1,"version"=@p2 WHERE id = @p3 AND version = @p4;

-- soonest
SELECT SYSUTCDATETIME(), (SELECT MIN(until) FROM partitions WHERE status = 'Available' AND NOT until <= SYSUTCDATETIME() AND owner <> '' AND owner <> @p1), (SELECT MIN(not_before) FROM items WHERE status = 'Available' AND not_before IS NOT NULL AND NOT not_before <= SYSUTCDATETIME()), (SELECT COUNT(*) FROM partitions WHERE status = 'Available' AND NOT until <= SYSUTCDATETIME() AND claimant = @p2);

-- fetch
SELECT i.partition_id, i.id, i.seq, i.gate, i.status, i.attempt, i.step, i.errors, i.history, i.data, i.not_before, i.version, i.timer, i.crashes FROM items i WHERE i.partition_id = @p1 AND i.gate = (SELECT p.gate FROM partitions p WHERE p.id = @p2 AND p.owner = @p3 AND p.epoch = @p4 AND p.status = 'Available') AND i.seq > @p5 AND i.status = 'Available' AND (i.not_before IS NULL OR i.not_before <= SYSUTCDATETIME()) ORDER BY i.seq OFFSET 0 ROW FETCH NEXT 10 ROWS ONLY;

-- save
UPDATE partitions SET gate = gate WHERE id IN (@p1);
SELECT "partitions"."id","partitions"."gate","partitions"."status","partitions"."owner","partitions"."until","partitions"."epoch","partitions"."sealed","partitions"."version","partitions"."claimant" FROM "partitions" WHERE owner = @p1 AND id IN (@p2) ORDER BY id;
SELECT SYSUTCDATETIME();
UPDATE "items" SET "attempt"=@p1,"crashes"=@p2,"data"=@p3,"errors"=@p4,"gate"=@p5,"history"=@p6,"not_before"=@p7,"status"=@p8,"step"=step + @p9,"version"=@p10 WHERE partition_id = @p11 AND id = @p12 AND version = @p13;

-- settle
UPDATE partitions SET gate = gate WHERE id IN (@p1);
SELECT "partitions"."id","partitions"."gate","partitions"."status","partitions"."owner","partitions"."until","partitions"."epoch","partitions"."sealed","partitions"."version","partitions"."claimant" FROM "partitions" WHERE id = @p1 ORDER BY "id" OFFSET 0 ROW FETCH NEXT 1 ROWS ONLY;
SELECT CASE WHEN EXISTS (SELECT 1 FROM items i WHERE i.partition_id = @p1 AND i.gate = @p2 AND i.status = 'Available' AND (i.not_before IS NULL OR i.not_before <= SYSUTCDATETIME())) THEN 1 ELSE 0 END, CASE WHEN EXISTS (SELECT 1 FROM items i WHERE i.partition_id = @p3 AND i.gate = @p4 AND i.status = 'Available') THEN 1 ELSE 0 END, CASE WHEN EXISTS (SELECT 1 FROM items i WHERE i.partition_id = @p5 AND i.gate = @p6 AND i.status = 'Failed') THEN 1 ELSE 0 END;
SELECT MIN(gate) FROM (SELECT MIN(gate) AS gate FROM items WHERE partition_id = @p1 AND gate >= @p2 AND status = 'Available' UNION ALL SELECT MIN(gate) AS gate FROM items WHERE partition_id = @p3 AND gate >= @p4 AND status = 'Failed') gates;
SELECT MIN(gate) FROM (SELECT MIN(gate) AS gate FROM items WHERE partition_id = @p1 AND gate >= @p2 AND status = 'Available' UNION ALL SELECT MIN(gate) AS gate FROM items WHERE partition_id = @p3 AND gate >= @p4 AND status = 'Failed') gates;
SELECT SYSUTCDATETIME();
UPDATE "partitions" SET "owner"=@p1,"status"=@p2,"until"=CASE WHEN claimant IS NULL OR claimant = '' THEN SYSUTCDATETIME() ELSE @p3 END,"version"=@p4 WHERE id = @p5 AND version = @p6;

-- grant
MERGE INTO "feed_limits" USING (VALUES(@p1,@p2,@p3)) AS excluded ("gate","state","version") ON "feed_limits"."gate" = "excluded"."gate" WHEN MATCHED THEN UPDATE SET "version"=feed_limits.version + 1 WHEN NOT MATCHED THEN INSERT ("gate","state","version") VALUES ("excluded"."gate","excluded"."state","excluded"."version");;
SELECT state, SYSUTCDATETIME() FROM "feed_limits" WHERE gate = @p1;
UPDATE "feed_limits" SET "state"=@p1 WHERE gate = @p2;

-- close
UPDATE partitions SET gate = gate WHERE id IN (@p1);
SELECT "partitions"."id","partitions"."gate","partitions"."status","partitions"."owner","partitions"."until","partitions"."epoch","partitions"."sealed","partitions"."version","partitions"."claimant" FROM "partitions" WHERE id = @p1 ORDER BY "id" OFFSET 0 ROW FETCH NEXT 1 ROWS ONLY;
SELECT MIN(gate) FROM (SELECT MIN(gate) AS gate FROM items WHERE partition_id = @p1 AND gate >= @p2 AND status = 'Available' UNION ALL SELECT MIN(gate) AS gate FROM items WHERE partition_id = @p3 AND gate >= @p4 AND status = 'Failed') gates;
UPDATE "partitions" SET "claimant"=@p1,"owner"=@p2,"status"=@p3,"until"=SYSUTCDATETIME(),"version"=@p4 WHERE id = @p5 AND version = @p6;

-- advance
UPDATE partitions SET gate = gate WHERE id IN (@p1);
SELECT "partitions"."id","partitions"."gate","partitions"."status","partitions"."owner","partitions"."until","partitions"."epoch","partitions"."sealed","partitions"."version","partitions"."claimant" FROM "partitions" WHERE id = @p1 ORDER BY "id" OFFSET 0 ROW FETCH NEXT 1 ROWS ONLY;
SELECT MIN(gate) FROM (SELECT MIN(gate) AS gate FROM items WHERE partition_id = @p1 AND gate >= @p2 AND status = 'Available' UNION ALL SELECT MIN(gate) AS gate FROM items WHERE partition_id = @p3 AND gate >= @p4 AND status = 'Failed') gates;
UPDATE "partitions" SET "gate"=@p1,"status"=@p2,"version"=@p3 WHERE id = @p4 AND version = @p5;

-- retry
UPDATE partitions SET gate = gate WHERE id IN (@p1);
SELECT "partitions"."id","partitions"."gate","partitions"."status","partitions"."owner","partitions"."until","partitions"."epoch","partitions"."sealed","partitions"."version","partitions"."claimant" FROM "partitions" WHERE id = @p1 ORDER BY "id" OFFSET 0 ROW FETCH NEXT 1 ROWS ONLY;
UPDATE "items" SET "attempt"=@p1,"errors"=@p2,"not_before"=@p3,"status"=@p4,"version"=version + 1 WHERE partition_id = @p5 AND id = @p6 AND status = 'Failed';

-- items
SELECT "items"."partition_id","items"."id","items"."seq","items"."gate","items"."status","items"."attempt","items"."step","items"."errors","items"."history","items"."data","items"."not_before","items"."version","items"."timer","items"."crashes" FROM "items" WHERE ("items"."partition_id" = @p1 AND "items"."status" = @p2) AND gate = @p3 ORDER BY seq OFFSET 0 ROW FETCH NEXT 3 ROWS ONLY;

-- counts
SELECT "partitions"."id","partitions"."gate","partitions"."status","partitions"."owner","partitions"."until","partitions"."epoch","partitions"."sealed","partitions"."version","partitions"."claimant" FROM "partitions" WHERE id = @p1 ORDER BY "id" OFFSET 0 ROW FETCH NEXT 1 ROWS ONLY;
SELECT "gate",COUNT(CASE WHEN status = 'Available' THEN 1 END) AS Available,COUNT(CASE WHEN status = 'Complete' THEN 1 END) AS Complete,COUNT(CASE WHEN status = 'Failed' THEN 1 END) AS Failed FROM "items" WHERE partition_id = @p1 GROUP BY "gate";

-- steps
SELECT "partitions"."id","partitions"."gate","partitions"."status","partitions"."owner","partitions"."until","partitions"."epoch","partitions"."sealed","partitions"."version","partitions"."claimant" FROM "partitions" WHERE id = @p1 ORDER BY "id" OFFSET 0 ROW FETCH NEXT 1 ROWS ONLY;
SELECT COALESCE(SUM(step), 0) FROM items WHERE partition_id = @p1;

-- backlog
SELECT COUNT(CASE WHEN i.gate = p.gate AND (i.not_before IS NULL OR i.not_before <= SYSUTCDATETIME()) THEN 1 END), COUNT(CASE WHEN i.gate = p.gate AND NOT (i.not_before IS NULL OR i.not_before <= SYSUTCDATETIME()) THEN 1 END), COUNT(CASE WHEN i.gate > p.gate THEN 1 END), COUNT(CASE WHEN i.gate < p.gate THEN 1 END), MIN(CASE WHEN i.gate = p.gate AND (i.not_before IS NULL OR i.not_before <= SYSUTCDATETIME()) THEN i.added END), SYSUTCDATETIME() FROM items i JOIN partitions p ON p.id = i.partition_id WHERE i.status = 'Available';
SELECT COUNT(*), COUNT(DISTINCT partition_id) FROM items WHERE status = 'Failed';

-- create
INSERT INTO "partitions" ("id","gate","status","owner","until","epoch","sealed","version","claimant") VALUES (@p1,@p2,@p3,@p4,@p5,@p6,@p7,@p8,@p9);;
INSERT INTO "items" ("partition_id","id","gate","status","attempt","step","errors","data","not_before","version","timer") VALUES (@p1,@p2,@p3,@p4,@p5,@p6,@p7,@p8,@p9,@p10,@p11);;

